"""Which handler an operator gets: what ``__torch_dispatch__`` calls, ``HANDLERS[id(overload)](args, kwargs)``.

The first of :data:`ROUTES` that takes an operator decides, at the operator's first call. A call without a lowering, or
one that the lowering refuses, takes the steps of :data:`.fallback.STEPS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch._ops import OpOverload

from xlaprof.runtime import parity
from xlaprof.runtime.execution import constants
from xlaprof.runtime.lowering.registry import RANDOM
from xlaprof.runtime.shapes.checks import CHECKS
from xlaprof.runtime.shapes.rehearse import rehearse
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace import tensor
from xlaprof.runtime.trace.ops import Op, is_view
from xlaprof.runtime.trace.tensor import HANDLERS

from . import custom, fallback, out_variants, strict_handlers
from .handlers import SPECIAL, functional, general, inplace, view
from .types import Args, Handler, Kwargs


class Route(NamedTuple):
    """The operators that ``takes`` accepts get the handler that ``make`` makes."""

    name: str
    takes: Callable[[Op], bool]
    make: Callable[[Op], Handler]


def _is_library(op: Op) -> bool:
    """Does ``op`` belong to a library other than PyTorch, without a lowering here?"""
    return op.func.namespace not in ("aten", "prims") and op.lowering is None


def _per_tensor(op: Op) -> Handler:
    """PyTorch's own kernel, one operation per tensor: the graph is that of the loop written out, so is the program."""
    return custom.kernel(op.func, "CompositeExplicitAutograd")


#: autograd calls these kernels itself: the operators get here in inference mode, and from kernels that we call
_COMPOSED = "CompositeImplicitAutograd"


def _is_composed(op: Op) -> bool:
    """Whether PyTorch composes it, and makes no tensor of another layout, which the device has no form for."""
    laid_out = any(argument.name == "layout" for argument in op.func._schema.arguments)
    return not laid_out and custom.has_kernel(op.func, _COMPOSED)


def _by_pytorch(op: Op) -> Handler:
    """PyTorch's own composition of ``op``: it checks the call, so nothing else does; the graph is that of training."""
    return custom.kernel(op.func, _COMPOSED)


#: how a call is recorded: the first route that takes the operator
RECORDED = (
    Route("lists of tensors (_foreach_*)", lambda op: op.aten.startswith("aten::_foreach_"), _per_tensor),
    Route("several views", lambda op: is_view(op.func) and op.returns_list, fallback.views_by_slices),
    Route("view", lambda op: is_view(op.func), view),
    Route("in place", lambda op: op.writes == (0,) and not op.func._schema.arguments[0].kwarg_only, inplace),
    Route("out=", lambda op: bool(op.writes), out_variants.out),
    Route("one number in all elements", constants.is_constant, lambda op: general(op, Tape.constant)),
    Route("lowering", lambda op: op.lowering is not None, functional),
    Route("composed by PyTorch", _is_composed, _by_pytorch),
    Route("fallback", lambda op: True, lambda op: partial(fallback.compute, op)),
)
#: all routes: handlers and kernels of an operator's own come first
ROUTES = (
    Route("a handler of its own", lambda op: op.name in SPECIAL, lambda op: SPECIAL[op.name]),
    Route("a library's own kernel", _is_library, lambda op: custom.custom(op, _first(RECORDED, op))),
    *RECORDED,
)


def _first(routes: tuple[Route, ...], op: Op) -> Handler:
    return next(route.make(op) for route in routes if route.takes(op))


def prepare(func: OpOverload) -> Handler:
    """Make, keep and return the handler of ``func``."""
    op = Op(func)
    handler = strict_handlers.handler(op, lambda: _first(ROUTES, op)) if parity.strict else _first(ROUTES, op)
    if op.name in RANDOM and op.name in CHECKS:
        handler = _checked(op, handler)
    HANDLERS[id(func)] = handler
    return handler


def _checked(op: Op, otherwise: Handler) -> Handler:
    """Check a distribution's parameters at each call: as inputs of the graph they may be invalid in a known one."""
    suspect = CHECKS[op.name]

    def record(args: Args, kwargs: Kwargs) -> Any:
        if suspect(*args, **kwargs):
            rehearse(op, args, kwargs)
        return otherwise(args, kwargs)

    return record


tensor.make_handler = prepare
parity.on_change.append(HANDLERS.clear)  # each is made again at the operator's next call
