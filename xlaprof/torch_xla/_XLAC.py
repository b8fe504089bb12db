"""``torch_xla._XLAC``: the functions of PyTorch/XLA's C++ module that scripts and its own tests call.

They call the runtime. The other functions of that module have no meaning here and raise ``AttributeError``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import torch

import xlaprof.runtime as _runtime
from xlaprof import import_hook
from xlaprof.runtime import metrics
from xlaprof.runtime.execution import program
from xlaprof.runtime.tape import computations, tapes
from xlaprof.runtime.trace.storage import DTYPE_TEXT
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.transfer import host
from xlaprof.torch_xla import _graphs, _random
from xlaprof.torch_xla import _lowering as lowering
from xlaprof.torch_xla import torch_xla as _top
from xlaprof.torch_xla._served import served

__all__ = ["lowering"]

Tensors = Sequence[torch.Tensor]

__getattr__, __dir__ = served(__name__)


# -- devices -------------------------------------------------------------------------------------------------


def _xla_get_default_device() -> str:
    return str(_top.device())


def _xla_set_default_device(device: str) -> str:
    before = _xla_get_default_device()
    tapes.set_current(torch.device(device))
    return before


def _xla_get_device_ordinal(device: str) -> int:
    """The number of ``device`` among this process's."""
    return tapes.of_device(device).index


def _xla_runtime_is_initialized() -> bool:
    return bool(tapes.existing())


def _xla_computation_cache_is_initialized() -> bool:
    return len(program.cache) > 0


@functools.cache
def _init_xla_lazy_backend() -> None:
    """Done when the runtime was imported. Counted at the first call: the metrics of a program begin empty."""
    metrics.count("RegisterXLAFunctions")


def _ensure_xla_coordinator_initialized(
    global_rank: int = 0, world_size: int = 1, master_addr: str = "", port: str = ""
) -> None:
    """Join the world that this process belongs to, whose coordinator knows the ranks."""
    from xlaprof.runtime import distributed  # heavy: torch.distributed and jax's

    distributed.join()


def _has_cuda_support() -> bool:
    return _runtime.device_type() == "CUDA"


def _get_git_revs() -> dict[str, str]:
    """Versions, in place of commits."""
    return {"torch": torch.version.git_version, "xla": import_hook.version()}


# -- running -------------------------------------------------------------------------------------------------


def _xla_step_marker(
    device: str = "", devices: Sequence[str] = (), wait: bool = False, reset_scope: bool = True
) -> None:
    _runtime.mark_step(wait=wait)


def _xla_sync_multi(
    tensors: Tensors, devices: Sequence[str] = (), wait: bool = True, sync_xla_data: bool = True
) -> None:
    host.compute([tensor._storage for tensor in tensors if isinstance(tensor, XLATensor)], wait=wait)


def _xla_sync_live_tensors(device: str = "", devices: Sequence[str] = (), wait: bool = True) -> None:
    for tape in [tapes.of_device(device)] if device else tapes.existing():
        with tape.lock:
            live = tape.live()
        host.compute(live, wait=wait)


_xla_warm_up_cache = _xla_sync_multi


def _is_placeholder(tensor: torch.Tensor) -> bool:
    """Has the tensor never had a value?"""
    storage: Any = tensor._storage  # type: ignore[attr-defined]
    return storage.array is None and storage.epoch != storage.tape.epoch


_is_placecholder = _is_placeholder  # so it is spelled there


def _check_tensor_need_materialization(tensors: Tensors) -> list[bool]:
    """For each tensor, is it pending?"""
    return [isinstance(t, XLATensor) and _graphs.is_pending(t._storage) for t in tensors]


def _get_stablehlo(tensors: Tensors, device: str, devices: Sequence[str], emit_bytecode: bool) -> bytes:
    return _graphs.stablehlo_bytecode(tensors) if emit_bytecode else _graphs.stablehlo(tensors).encode()


# -- tensors -------------------------------------------------------------------------------------------------


def _xla_tensors_from_aten(tensors: Tensors, devices: Sequence[str], shardings: Any = None) -> list[torch.Tensor]:
    """Copies of host tensors on ``devices``, one transfer for each."""
    made: list[torch.Tensor | None] = [None] * len(tensors)
    for device in dict.fromkeys(devices):
        at = [i for i, d in enumerate(devices) if d == device]
        sent = host.send(tapes.of_device(device), [tensors[i] for i in at])
        for i, tensor in zip(at, sent, strict=True):
            made[i] = tensor
    return [tensor for tensor in made if tensor is not None]


def _xla_get_tensor_id(tensor: torch.Tensor) -> int:
    """A number that identifies the tensor as long as it lives."""
    if not isinstance(tensor, XLATensor):
        raise RuntimeError("Input tensor is not an XLA tensor: " + tensor.type())
    return id(tensor._storage)


def _xla_get_tensor_view_alias_id(tensor: torch.Tensor) -> int:
    """A number that tensors on the same storage share."""
    return tensor.untyped_storage().data_ptr()


def _unsafe_buffer_pointer(tensor: torch.Tensor) -> int:
    """Address of the tensor's value on the device, computed first where it is pending."""
    return int(_runtime.to_jax(tensor).unsafe_buffer_pointer())


def _get_xla_tensor_dimension_size(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The size of a dimension, as a tensor on the device."""
    return torch.tensor(tensor.size(dim), dtype=torch.int32, device=tensor.device)


def _get_xla_tensor_shape_type(tensor: torch.Tensor) -> str:
    """XLA's name of the tensor's dtype: ``"f32"``."""
    return DTYPE_TEXT[tensor.dtype]


def _replace_xla_tensor(old: torch.Tensor, new: torch.Tensor) -> None:
    """Make ``old`` another handle on ``new``'s value."""
    old.data = new


def _xla_user_computation(name: str, tensors: Tensors, computation: computations.Computation) -> list[torch.Tensor]:
    return computation(*tensors)


# -- random numbers, counters --------------------------------------------------------------------------------


def _xla_set_rng_seed(seed: int, device: str = "") -> None:
    _random.set_rng_state(seed, device or None)


def _xla_get_rng_seed(device: str = "") -> int:
    return _random.get_rng_state(device or None)


# -- settings ------------------------------------------------------------------------------------------------


def _xla_set_mat_mul_precision(precision: str) -> None:
    """``"default"``, ``"high"`` or ``"highest"``: how exact products of float32 are on hardware that has a choice.

    Graphs are compiled again for it. Functions under ``torch.compile`` keep their programs.
    """
    if precision not in ("default", "high", "highest"):
        raise ValueError(f"mat mul precision must be default, high or highest, not {precision!r}")
    if precision != _xla_get_mat_mul_precision():
        jax.config.update("jax_default_matmul_precision", precision)
        program.cache.clear()


def _xla_set_use_full_mat_mul_precision(use_full_mat_mul_precision: bool = True) -> None:
    """The older form of :func:`_xla_set_mat_mul_precision`, with two values."""
    _xla_set_mat_mul_precision("highest" if use_full_mat_mul_precision else "default")


def _xla_get_mat_mul_precision() -> str:
    return str(jax.config.jax_default_matmul_precision or "default")  # type: ignore[attr-defined]


def _set_xla_all_numbers_special_scalars(enabled: bool) -> None:
    """Make all numbers part of the graph (``XLA_ALL_NUMBERS_SPECIAL_SCALARS``): not served."""
    if enabled:
        raise NotImplementedError("numbers other than 0, 1 and -1 are inputs of the graph; see XLA_NO_SPECIAL_SCALARS")


def _get_xla_enable_device_data_cache() -> bool:
    return True
