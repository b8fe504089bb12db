"""Rules for Dynamo on our functions, which it does not trace: without rules each call would break the graph.

A function whose result does not change while a program runs (the device, say) becomes a constant. A function that only
records operators is called from within the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_rules: dict[str, str] = {}  # a function's name -> the class of Dynamo's variables that stand for it
_installed = False


def constant(function: Callable[..., Any]) -> None:
    """Rule, now or when Dynamo is imported: ``function``, of a module's top level, returns a constant."""
    function.__dict__["_dynamo_marked_constant"] = True  # as torch.compiler.assume_constant_result does
    _rule(function, "UserFunctionVariable")


def in_graph(function: Callable[..., Any]) -> None:
    """Rule, now or when Dynamo is imported: graphs call ``function``, of a module's top level."""
    _rule(function, "TorchInGraphFunctionVariable")


def _rule(function: Callable[..., Any], kind: str) -> None:
    rule = {f"{function.__module__}.{function.__qualname__}": kind}
    _rules.update(rule)
    if _installed:
        _add(rule)


def install() -> None:
    """Add the rules: ``torch._dynamo`` has been imported."""
    global _installed
    _installed = True
    _add(_rules)


def _add(rules: dict[str, str]) -> None:
    # Dynamo skips our packages. A mark on a function does not override that, an entry in Dynamo's rules does. The
    # entries are names: torch._dynamo.reset() drops what Dynamo derived from them, and it is derived again.
    from torch._dynamo import trace_rules, variables

    known: list[Any] = trace_rules.torch_name_rule_map
    known.append({name: getattr(variables, kind) for name, kind in rules.items()})
    trace_rules.get_torch_obj_rule_map.cache_clear()
