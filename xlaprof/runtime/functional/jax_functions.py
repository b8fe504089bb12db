"""The user's jax functions, called with tensors on ``xla``: each call becomes one recorded operation.

A function is traced once for arguments of the same structure, shapes, dtypes and other values. Like jax's own cache,
ours forgets a function that nothing else refers to any more.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core
import torch

from xlaprof.runtime.dispatch.handlers import special
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape.computations import Computation
from xlaprof.runtime.trace.tensor import XLATensor


class _Call(NamedTuple):
    computation: Computation
    number: int  # the operator's argument that names it
    results: list[Any]  # the structure of the function's results, once it was traced


class Cache:
    """Traced functions: by jax's settings, then by function, then by arguments."""

    def __init__(self) -> None:
        self._calls: dict[Any, weakref.WeakKeyDictionary[Any, dict[Any, _Call]]] = {}
        self._lock = threading.Lock()

    def get(self, function: Callable[..., Any], key: Any, make: Callable[[], _Call]) -> _Call:
        """The trace of ``function`` for ``key``; ``make`` makes it the first time."""
        with self._lock:
            functions = self._calls.setdefault(_settings(), weakref.WeakKeyDictionary())
            calls = functions.setdefault(function, {})
            if key not in calls:
                calls[key] = make()
            return calls[key]

    def clear(self) -> None:
        """Trace everything again."""
        with self._lock:
            self._calls.clear()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(calls) for functions in self._calls.values() for calls in functions.values())


cache = Cache()
_numbers = itertools.count(1)
#: functions called while PyTorch traced, by number
_traced: OrderedDict[int, Computation] = OrderedDict()
_LIMIT = 1024


def call_jax(
    jax_func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, name: str | None = None
) -> Any:
    """``jax_func(*args, **kwargs)`` with tensors: they reach it as jax arrays, and its arrays come back as tensors.

    Arguments and results are jax's pytrees. Values other than tensors are part of the operation: for another value the
    function is traced again. It has to be one that ``jax.jit`` takes. No gradient passes; see ``j2t_autograd``.
    It runs with the user's settings of jax, in 64-bit mode too where a tensor has 64-bit values.

    Raises ``RuntimeError`` for tensors that are not on ``xla``.
    """
    leaves, spec = jax.tree.flatten((args, kwargs or {}))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors: list[torch.Tensor] = [leaves[i] for i in at]
    label = name or f"jax_func_{getattr(jax_func, '__name__', type(jax_func).__name__)}"
    for tensor in tensors:
        if tensor.device.type != "xla":
            raise RuntimeError(f"{label} wants tensors on xla, not on {tensor.device}: move it there first")
    fixed = tuple(
        (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else _identity(leaf) for leaf in leaves
    )
    call = cache.get(jax_func, (label, spec, fixed), lambda: _trace(jax_func, label, leaves, spec, at))
    # An operation needs a device: a function without tensors gets one that it does not see.
    given = tensors or [torch.empty(0, device="xla")]
    if all(type(tensor) is XLATensor for tensor in given):
        outs = call.computation(*given)
    else:  # fake ones: PyTorch is tracing
        _traced[call.number] = call.computation
        if len(_traced) > _LIMIT:
            _traced.popitem(last=False)
        outs = torch.ops.xla.jax_function(given, call.number)
    return jax.tree.unflatten(call.results[0], outs)


def _trace(function: Callable[..., Any], label: str, leaves: list[Any], spec: Any, at: Sequence[int]) -> _Call:
    results: list[Any] = []
    held = [JAX_DTYPE[leaf] if isinstance(leaf, torch.dtype) else leaf for leaf in leaves]
    for i in at:
        held[i] = None  # tensors are not kept alive

    def flat(*arrays: Any) -> list[Any]:
        given = list(held)
        for i, array in zip(at, arrays, strict=True):
            given[i] = array
        args, kwargs = jax.tree.unflatten(spec, given)
        outs, structure = jax.tree.flatten(function(*args, **kwargs))
        results[:] = [structure]
        return outs

    wide = any(leaves[i].dtype in _WIDE for i in at)
    user = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    arrays = [jax.ShapeDtypeStruct(tuple(leaves[i].shape), JAX_DTYPE[leaves[i].dtype]) for i in at]
    with jax.enable_x64(user or wide):
        compute = jax.extend.core.jaxpr_as_fun(jax.make_jaxpr(flat)(*arrays))
    computation = Computation(f"xla::{label}", lambda *arrays: compute(*arrays[: len(at)]))
    return _Call(computation, next(_numbers), results)


_WIDE = (torch.int64, torch.uint64, torch.float64, torch.complex128)


def _identity(leaf: Any) -> Any:
    """A hashable value, equal for equal leaves."""
    try:
        hash(leaf)
    except TypeError:
        return type(leaf), pickle.dumps(leaf)
    return type(leaf), leaf


def _settings() -> Any:
    """jax's settings that a trace depends on."""
    values = jax.config.values
    return tuple(sorted((key, repr(values[key])) for key in _SETTINGS if key in values))


_SETTINGS = (
    "jax_default_matmul_precision", "jax_enable_x64", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion",
    "jax_default_prng_impl", "jax_threefry_partitionable", "jax_debug_nans", "jax_disable_jit",
)  # fmt: skip


# -- as an operator, which PyTorch records where it traces with fake tensors ------------------------------------------

_library = torch.library.Library("xla", "FRAGMENT")
_library.define("jax_function(Tensor[] tensors, int number) -> Tensor[]")


def _fake(tensors: list[torch.Tensor], number: int) -> list[torch.Tensor]:
    device = tensors[0].device
    shapes = _traced[number].shapes(tensors)
    return [torch.empty(spec.sig.shape, dtype=spec.sig.dtype, device=device) for spec in shapes]


_library.impl("jax_function", _fake, "Meta")


@special("xla.jax_function.default")
def _jax_function(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    tensors, number = args
    return _traced[number](*tensors)


# -- with gradients ---------------------------------------------------------------------------------------------------


def j2t_autograd(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, a jax function, as one of tensors on ``xla`` through which gradients pass, as ``jax.vjp`` computes them.

    The backward pass computes ``fn`` again, as part of its own operation.
    """

    def backward(primals: list[Any], spec: Any, fixed: list[Any], at: tuple[int, ...], gradients: list[Any]) -> Any:
        wanted = [i for i, primal in enumerate(primals) if jax.numpy.issubdtype(primal.dtype, jax.numpy.inexact)]

        def results(*some: Any) -> list[Any]:
            given = list(fixed)
            arrays = list(primals)
            for i, array in zip(wanted, some, strict=True):
                arrays[i] = array
            for i, array in zip(at, arrays, strict=True):
                given[i] = array
            args, kwargs = jax.tree.unflatten(spec, given)
            outs = jax.tree.leaves(fn(*args, **kwargs))
            return [out for out in outs if jax.numpy.issubdtype(out.dtype, jax.numpy.inexact)]

        _, pull = jax.vjp(results, *(primals[i] for i in wanted))
        return pull(gradients)

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = jax.tree.flatten((args, kwargs))
        at = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        structure: list[Any] = []

        class Called(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
                ctx.save_for_backward(*tensors)
                outs, result = jax.tree.flatten(call_jax(fn, args, kwargs))
                structure[:] = [result]
                ctx.mark_non_differentiable(*(out for out in outs if not _differentiable(out)))
                ctx.inexact = [_differentiable(out) for out in outs]
                return tuple(outs)

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                if torch.is_grad_enabled():
                    raise RuntimeError(
                        "a jax function has no second gradients here: leave out create_graph=True, or "
                        "call jax.grad of it with call_jax"
                    )
                tensors = list(ctx.saved_tensors)
                fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
                used = [gradient for gradient, wanted in zip(gradients, ctx.inexact, strict=True) if wanted]
                made = iter(call_jax(_static(backward, spec, fixed, at), (tensors, used)))
                return tuple(next(made) if _differentiable(tensor) else None for tensor in tensors)

        outs = Called.apply(*(leaves[i] for i in at))  # type: ignore[no-untyped-call]
        return jax.tree.unflatten(structure[0], outs)

    statics: dict[Any, Callable[..., Any]] = {}

    def _static(inner: Callable[..., Any], spec: Any, fixed: list[Any], at: tuple[int, ...]) -> Callable[..., Any]:
        key = (spec, tuple(_identity(value) for value in fixed), at)
        if key not in statics:
            statics[key] = lambda primals, gradients: inner(primals, spec, fixed, at, gradients)
        return statics[key]

    return function


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
