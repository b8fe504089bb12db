"""Values shared with jax, and exported by DLPack.

The value of a tensor on ``xla`` is a ``jax.Array`` once it is computed, so either is made from the other without a
copy: arrays never change, a write gives the tensor another array, and a buffer with other holders is not donated. The
holder of a DLPack capsule is unknown, so it gets a copy.
"""

from __future__ import annotations

from typing import Any

import jax
import torch

from xlaprof.runtime.execution import reads
from xlaprof.runtime.lowering.registry import TORCH_DTYPE
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace.storage import NOWHERE, Storage, sig
from xlaprof.runtime.trace.tensor import XLATensor, handle, method


@method("__jax_array__")
def to_jax(tensor: torch.Tensor) -> jax.Array:
    """The value of ``tensor``, which is on ``xla``, as a jax array of its shape and dtype, without a copy.

    Its pending operations run, as in a read; later writes to the tensor do not show in the array. Raises
    ``TypeError`` for a tensor on another device.
    """
    if not isinstance(tensor, XLATensor):
        raise TypeError(f'to_jax wants a tensor on xla, not one on {tensor.device}: move it there first, .to("xla")')
    storage = tensor._storage
    (array,) = reads.values(storage.tape, [storage], ())
    reads.materialize(storage.tape, storage, array)
    if storage.tape.partition is not None:
        array = storage.tape.partition.whole(storage, array)
    return array  # type: ignore[no-any-return]


def from_jax(array: jax.Array) -> torch.Tensor:
    """A tensor on ``xla`` with the value of ``array``, without a copy.

    Raises ``TypeError`` for other types and dtypes that PyTorch lacks, and ``ValueError`` for one that is
    not on a single device of this process's ``xla`` devices.
    """
    if not isinstance(array, jax.Array):
        raise TypeError(f"from_jax wants a jax.Array, not {type(array).__name__}: torch.as_tensor(...) takes others")
    dtype = TORCH_DTYPE.get(jax.numpy.dtype(array.dtype))
    if dtype is None:
        raise TypeError(f"PyTorch has no dtype for {array.dtype}: convert the array first, array.astype(...)")
    there = list(array.devices())
    if tapes.together():
        tape = tapes.tape()
        assert tape.partition is not None
        if tape.partition.sharding_of(array) is not None:
            return handle(Storage(tape, sig(tuple(array.shape), dtype), 0, NOWHERE, 0, array))
    if len(there) != 1 or there[0] not in tapes.devices():
        raise ValueError(
            f"the array is on {sorted(map(str, there))}, xla is {[str(d) for d in tapes.devices()]}: "
            "move it to one of those first, jax.device_put(array, device)"
        )
    tape = tapes.tape(tapes.devices().index(there[0]))
    return handle(Storage(tape, sig(tuple(array.shape), dtype), 0, NOWHERE, 0, array))


@method("__dlpack__")
def dlpack(
    tensor: XLATensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """A capsule with a copy of the value. ``BufferError`` if no copy is allowed, or gradients are required."""
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if copy is False:
        raise BufferError(
            f"the memory of a tensor on {tensor.device} is not lent out, it may be given up to the next program: "
            "take a copy (copy=None), or the jax array itself, xlaprof.runtime.to_jax(tensor)"
        )
    with jax.enable_x64(True):
        own: Any = jax.numpy.array(to_jax(tensor), copy=True)
    return own.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)


@method("__dlpack_device__")
def dlpack_device(tensor: XLATensor) -> Any:
    """The device that the capsule's memory is on: type (``kDLCPU``, ``kDLCUDA``) and number."""
    array: Any = to_jax(tensor)
    return array.__dlpack_device__()
