"""Rules for Dynamo on our functions, which it does not trace: without rules each call would break the graph.

A function whose result does not change while a program runs (the device, say) becomes a constant. A function that only
records operators is called from within the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_constants: list[Callable[..., Any]] = []
_in_graph: list[Callable[..., Any]] = []
_installed = False


def constant(function: Callable[..., Any]) -> None:
    """Rule, now or when Dynamo is imported: ``function``, of a module's top level, returns a constant."""
    function.__dict__["_dynamo_marked_constant"] = True  # as torch.compiler.assume_constant_result does
    _constants.append(function)
    if _installed:
        _add_rules([function], [])


def in_graph(function: Callable[..., Any]) -> None:
    """Rule, now or when Dynamo is imported: graphs call ``function``, of a module's top level."""
    _in_graph.append(function)
    if _installed:
        _add_rules([], [function])


def install() -> None:
    """Add the rules: ``torch._dynamo`` has been imported."""
    global _installed
    _installed = True
    _add_rules(_constants, _in_graph)


def _add_rules(constants: list[Callable[..., Any]], in_graph: list[Callable[..., Any]]) -> None:
    # Dynamo skips our packages. A mark on a function does not override that, an entry in Dynamo's rules does. The
    # entries are names: torch._dynamo.reset() drops what Dynamo derived from them, and it is derived again.
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import TorchInGraphFunctionVariable, UserFunctionVariable

    rules: list[Any] = trace_rules.torch_name_rule_map
    rules.append(dict.fromkeys(map(_name, constants), UserFunctionVariable))
    rules.append(dict.fromkeys(map(_name, in_graph), TorchInGraphFunctionVariable))
    trace_rules.get_torch_obj_rule_map.cache_clear()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
