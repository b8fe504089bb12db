"""Functions whose result does not change while a program runs (which device there is, say).

Dynamo calls them while it traces and takes what they return as a constant, where otherwise it would cut the graph: it
does not trace our code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_functions: list[Callable[..., Any]] = []
_installed = False


def constant(function: Callable[..., Any]) -> None:
    """Tell Dynamo, now or when it is imported, that ``function`` returns a constant."""
    function.__dict__["_dynamo_marked_constant"] = True  # as torch.compiler.assume_constant_result does
    _functions.append(function)
    if _installed:
        _tell([function])


def install() -> None:
    """``torch._dynamo`` is imported by now."""
    global _installed
    _installed = True
    _tell(_functions)


def _tell(functions: list[Callable[..., Any]]) -> None:
    # Packages of ours are skipped, which no mark on a function overrides: an entry of its own in Dynamo's rules does.
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import UserFunctionVariable

    trace_rules.get_torch_obj_rule_map().update(dict.fromkeys(functions, UserFunctionVariable))
