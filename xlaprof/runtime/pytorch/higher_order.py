"""Operators that take functions (``torch.cond``, ``while_loop``, ``scan``...), run on ``xla`` as PyTorch runs them.

PyTorch needs a rule for each type of tensor. Ours is its own generic rule, which calls the functions: a condition is
read, and the passes of a loop are recorded one after another.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch._C import DispatchKey
from torch._ops import _higher_order_ops

from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.transfer import host
from xlaprof.when_imported import when_imported

#: loops: the first function decides before each pass of the second
_WHILE = ("while_loop", "while_loop_stack_output")


def install() -> None:
    """Register PyTorch's generic rule for our tensors, for every operator that has one."""
    for name, operator in _higher_order_ops.items():
        rule = operator.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if rule is not None and XLATensor not in operator.python_key_table:
            operator.py_impl(XLATensor)(_pass_by_pass(rule) if name in _WHILE else rule)
    when_imported(_SEARCH[0], _leave_alone)


def _leave_alone() -> None:
    """Exclude these operators from PyTorch's search for aliases that custom operators return.

    The search runs at the first call of a compiled graph. It inspects none of these operators, but declines them for
    tensors of unknown types, and no other rule is left to handle them.
    """
    mode = getattr(sys.modules[_SEARCH[0]], _SEARCH[1], None)
    for operator in _higher_order_ops.values():
        if mode is not None and mode not in operator.python_key_table:
            operator.py_impl(mode)(functools.partial(_not_searched, operator))


_SEARCH = ("torch._functorch._aot_autograd.runtime_wrappers", "_AnalyzeCustomOpInputOutputMode")


def _not_searched(operator: Any, mode: Any, *args: Any, **kwargs: Any) -> Any:
    return operator(*args, **kwargs)


def _pass_by_pass(rule: Callable[..., Any]) -> Callable[..., Any]:
    """``rule``, but each pass is computed before the next condition: two programs for all passes.

    The condition's read leaves other operations pending. Without this, each read would compute one more pass than the
    one before, by another program.
    """

    def run(condition: Callable[..., Any], *rest: Any) -> Any:
        def after_pass(*carried: Any) -> Any:
            host.compute([value._storage for value in carried if type(value) is XLATensor], wait=False)
            return condition(*carried)

        return rule(after_pass, *rest)

    return run
