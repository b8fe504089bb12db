"""What Dynamo is told of our functions, which it does not trace: it would cut the graph at each.

Of those whose result does not change while a program runs (which device there is, say) it takes the result as a
constant. Those that only record operators it calls from within the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_constants: list[Callable[..., Any]] = []
_in_graph: list[Callable[..., Any]] = []
_installed = False


def constant(function: Callable[..., Any]) -> None:
    """Tell Dynamo, now or when it is imported, that ``function`` returns a constant."""
    function.__dict__["_dynamo_marked_constant"] = True  # as torch.compiler.assume_constant_result does
    _constants.append(function)
    if _installed:
        _tell([function], [])


def in_graph(function: Callable[..., Any]) -> None:
    """Tell Dynamo, now or when it is imported, to have graphs call ``function``: of tensors it makes tensors."""
    _in_graph.append(function)
    if _installed:
        _tell([], [function])


def install() -> None:
    """``torch._dynamo`` is imported by now."""
    global _installed
    _installed = True
    _tell(_constants, _in_graph)


def _tell(constants: list[Callable[..., Any]], in_graph: list[Callable[..., Any]]) -> None:
    # Packages of ours are skipped, which no mark on a function overrides: an entry of its own in Dynamo's rules does.
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import TorchInGraphFunctionVariable, UserFunctionVariable

    rules = trace_rules.get_torch_obj_rule_map()
    rules.update(dict.fromkeys(constants, UserFunctionVariable))
    rules.update(dict.fromkeys(in_graph, TorchInGraphFunctionVariable))
