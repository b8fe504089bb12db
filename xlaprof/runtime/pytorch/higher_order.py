"""Operators that take functions (``torch.cond``, ``while_loop``, ``scan``...), run on ``xla`` as PyTorch runs them.

PyTorch wants a rule for each type of tensor, and has one that calls the functions: a condition is read, and the passes
of a loop are recorded one after another.
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

#: those whose first function is asked before each pass of the second
_WHILE = ("while_loop", "while_loop_stack_output")


def install() -> None:
    """Give every such operator that has one PyTorch's own rule, for our tensors."""
    for name, operator in _higher_order_ops.items():
        rule = operator.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if rule is not None and XLATensor not in operator.python_key_table:
            operator.py_impl(XLATensor)(_pass_by_pass(rule) if name in _WHILE else rule)
    when_imported(_LOOK[0], _leave_alone)


def _leave_alone() -> None:
    """Have PyTorch's look for aliases that custom operators return leave these operators alone.

    It is made at the first call of a compiled graph, and looks at none of them; and yet it declines those of tensors
    that it does not know, with nobody left to ask.
    """
    mode = getattr(sys.modules[_LOOK[0]], _LOOK[1], None)
    for operator in _higher_order_ops.values():
        if mode is not None and mode not in operator.python_key_table:
            operator.py_impl(mode)(functools.partial(_not_looked_at, operator))


_LOOK = ("torch._functorch._aot_autograd.runtime_wrappers", "_AnalyzeCustomOpInputOutputMode")


def _not_looked_at(operator: Any, mode: Any, *args: Any, **kwargs: Any) -> Any:
    return operator(*args, **kwargs)


def _pass_by_pass(rule: Callable[..., Any]) -> Callable[..., Any]:
    """``rule``, which runs each pass before it asks whether there is to be another: two programs for all of them.

    A read leaves pending operations: each would run one more pass than the one before, as a program of its own.
    """

    def run(condition: Callable[..., Any], *rest: Any) -> Any:
        def asked(*carried: Any) -> Any:
            host.compute([value._storage for value in carried if type(value) is XLATensor], wait=False)
            return condition(*carried)

        return rule(asked, *rest)

    return run
