"""Operations without an ATen operator, written over jax: recorded, compiled and run like all others."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch

from xlaprof.runtime.lowering.registry import JAX_DTYPE, TORCH_DTYPE
from xlaprof.runtime.trace.storage import sig
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.trace.trie import Ref, Spec

from . import mode
from .grow import Pseudo, grow

_numbers = itertools.count(1)


class Computation:
    """``function`` over jax arrays, as an operation on ``xla`` tensors: ``computation(x, y)`` gives a list of tensors.

    It returns an array or several, whose shapes follow from those of its arguments. It has no gradient.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.function = function
        # The number keeps two computations of one name apart.
        self.op: Any = Pseudo(f"{name}.{next(_numbers)}", lambda ctx, *arrays: _flat(function(*arrays)))
        self.op.aten = name
        self.op.says_all = False
        self._specs: dict[tuple[Any, ...], list[Spec | None]] = {}

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        storages = []
        for tensor in tensors:
            if not isinstance(tensor, XLATensor):
                raise RuntimeError(f"{self.op.aten} wants tensors on xla, not on {tensor.device}: move it there first")
            storages.append(tensor._storage)
        if not storages:
            raise RuntimeError(f"{self.op.aten} wants a tensor: which device is it to run on?")
        specs = self._describe(tuple(storage.sig for storage in storages))
        tape = storages[0].tape
        with tape.lock:
            slots = [tape.slot_of(storage) for storage in storages]
            key = (self.op, *slots)
            node = tape.node.edges.get(key)
            if node is None:
                node = grow(tape, self.op, key, tuple(map(Ref, slots)), {}, specs)
            tape.node = node
            results: list[torch.Tensor] = [handle(tape.output(out.slot, out.sig)) for out in node.outs]
        if mode.run_recorded is not None:  # eager
            mode.run_recorded()
        return results

    def shapes(self, tensors: Sequence[torch.Tensor]) -> list[Spec]:
        """Specs of the results for tensors of these shapes and dtypes, on any device."""
        specs = self._describe(tuple(sig(tuple(tensor.shape), tensor.dtype) for tensor in tensors))
        return [spec for spec in specs if spec is not None]

    def _describe(self, sigs: tuple[Any, ...]) -> list[Spec | None]:
        found = self._specs.get(sigs)
        if found is None:
            with jax.enable_x64(True):
                arrays = [jax.ShapeDtypeStruct(s.shape, JAX_DTYPE[s.dtype]) for s in sigs]
                outs = _flat(jax.eval_shape(self.function, *arrays))
            found = [Spec(sig(tuple(out.shape), TORCH_DTYPE[jax.numpy.dtype(out.dtype)])) for out in outs]
            self._specs[sigs] = found
        return found


def _flat(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


@functools.cache
def _barrier() -> Computation:
    return Computation("xla::optimization_barrier", lambda *arrays: jax.lax.optimization_barrier(arrays))


class _Barrier(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_barrier()(*tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients


_pass: Callable[..., tuple[torch.Tensor, ...]] = _Barrier.apply


def optimization_barrier(values: Sequence[Any]) -> tuple[Any, ...]:
    """``values`` with its ``xla`` tensors behind a barrier that XLA moves no computation across."""
    at = [i for i, value in enumerate(values) if isinstance(value, XLATensor)]
    passed = list(values)
    if at:
        for i, tensor in zip(at, _pass(*(values[i] for i in at)), strict=True):
            passed[i] = tensor
    return tuple(passed)


def optimization_barrier_(tensors: Sequence[torch.Tensor]) -> None:
    """The same in place."""
    with torch.no_grad():
        for tensor, passed in zip(tensors, optimization_barrier(tensors), strict=True):
            if passed is not tensor:
                tensor.data.copy_(passed)
