"""``torch_xla.core.xla_model``, customarily ``xm``: devices, barriers, collectives, saving, random state."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch

import xlaprof.runtime as _runtime
from xlaprof.runtime.dynamo.constants import constant
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace import nested
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.transfer import host, loader
from xlaprof.torch_xla import torch_xla as _top
from xlaprof.torch_xla._served import served

Device = torch.device | str

__getattr__, __dir__ = served(__name__)


# -- devices -------------------------------------------------------------------------------------------------


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The device ``xla:n``, which becomes this thread's current device; by default the current one.

    Raises ``IndexError`` where there is no such device, and ``RuntimeError`` where none is of ``devkind``.
    """
    if devkind is not None and not get_xla_supported_devices(devkind):
        raise RuntimeError(f"no device of kind {devkind}: this process has {', '.join(_top.real_devices())}")
    return _top.device(n)


def get_xla_supported_devices(devkind: str | int | None = None, max_devices: int | None = None) -> list[str] | None:
    """``["xla:0", "xla:1", ...]``: the devices of this process, ``max_devices`` at most (which may come first).

    With ``devkind`` (deprecated), those that are ``"CPU"``, ``"CUDA"`` or ``"TPU"``; ``None`` where there are none.
    """
    if isinstance(devkind, int):
        devkind, max_devices = None, devkind
    found = [f"xla:{i}" for i in range(tapes.count())]
    if devkind:
        warnings.warn("`devkind` argument is deprecated and will be removed in a future release.", stacklevel=2)
        found = [name for name, real in zip(found, _top.real_devices(), strict=True) if real.split(":")[0] == devkind]
        if not found:
            return None
    return found[:max_devices] if max_devices else found


def xla_real_devices(devices: Sequence[Device] | None = None) -> list[str]:
    """The hardware devices behind ``devices``, by default all of this process: ``["CPU:0"]``."""
    return [_real(device) for device in devices or _top.devices()]


def _real(device: Device) -> str:
    match = re.match(r"xla:(\d+)$", str(device))
    if not match:
        raise RuntimeError(f"Invalid device format: {device}")
    return _top.real_devices()[int(match[1])]


_xla_real_device = _real


def xla_device_hw(device: Device) -> str:
    """``"CPU"``, ``"CUDA"`` or ``"TPU"``."""
    return _real(tapes.of_device(device).torch_device).split(":")[0]


def xla_device_kind(device: Device | None = None) -> str:
    """The vendor's name of the device."""
    return str(tapes.of_device(device).device.device_kind)


def parse_xla_device(device: str) -> tuple[str, int] | None:
    """``("CPU", 0)`` for ``"CPU:0"``; ``None`` for anything else."""
    match = re.match(r"([A-Z]+):(\d+)$", device)
    return (match[1], int(match[2])) if match else None


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Is the tensor on ``xla``?"""
    return tensor.device.type == "xla"


def xla_replication_devices(local_devices: Sequence[Device] | None = None) -> list[str]:
    """The hardware devices of all processes: ``["CPU:0", "CPU:1"]``. ``local_devices`` are all of this process's."""
    given, there = len(local_devices or _top.devices()), len(_top.devices())
    if given != there:
        raise RuntimeError(f"Cannot replicate if number of devices ({given}) is different from {there}")
    from xlaprof.runtime import distributed  # heavy: torch.distributed and jax's

    return [f"{_runtime.device_type()}:{i}" for i in range(max(distributed.global_device_count(), there))]


def set_replication(device: Device, devices: Sequence[Device] | None) -> None:
    """Make ``device`` this thread's current one, as one of ``devices``, which are all of this process's (or none)."""
    if devices:
        xla_replication_devices(devices)
    tapes.set_current(torch.device(device))


class MemoryInfo(TypedDict):
    """The result of :func:`get_memory_info`, in bytes; a limit of 0 means unknown."""

    bytes_used: int
    bytes_limit: int
    peak_bytes_used: int


def get_memory_info(device: Device | None = None) -> MemoryInfo:
    """Memory in use on ``device``, by default the current one. :func:`xlaprof.runtime.memory_info` says by whom."""
    info = _runtime.memory_info(device, top=0)
    used = info.bytes_in_use + info.other_bytes
    peak = used if info.peak_bytes is None else info.peak_bytes
    return {"bytes_used": used, "bytes_limit": info.limit_bytes or 0, "peak_bytes_used": peak}


# -- barriers ------------------------------------------------------------------------------------------------


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Compute ``tensors``, one execution for each device, and wait for them; all else stays pending."""
    host.compute([tensor._storage for tensor in tensors if isinstance(tensor, XLATensor)], wait=True)


# -- between host and device ---------------------------------------------------------------------------------


def send_cpu_data_to_device(datas: Any, device: Device, input_sharding: Any = None) -> Any:
    """``datas`` with all host tensors inside on ``device``, by one transfer; for a tensor, returns ``[tensor]``.

    ``input_sharding`` (:class:`~xlaprof.runtime.spmd.ShardingSpec`) is their sharding over the devices.
    """
    if isinstance(datas, torch.Tensor):
        datas = [datas]
    return loader.send(datas, tapes.of_device(device), input_sharding)


def save(data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False) -> None:
    """``torch.save`` of ``data`` with its tensors brought to the host, by one execution and one transfer.

    With ``master_only`` only the master of each host writes, with ``global_master`` only that of all hosts.
    """
    from xlaprof.runtime import distributed  # heavy: torch.distributed and jax's

    writes = not master_only or distributed.is_master_ordinal(local=not global_master)
    there = _maybe_convert_to_cpu(data, convert=writes)
    if writes:
        torch.save(there, file_or_path)


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    """``data`` with its ``xla`` tensors on the host; without ``convert``, as it is, but computed."""
    if not convert:  # other processes compute with this one: their graphs must not differ
        unlazy(nested.tensors(data, is_xla_tensor))
        return data
    return nested.converted(data, is_xla_tensor, _read)


def _read(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the host, one transfer for each device."""
    by_tape: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_tape.setdefault(tensor.device.index, []).append(tensor)
    values: dict[int, torch.Tensor] = {}
    for group in by_tape.values():
        read = host.read([t._storage for t in group], "aten::_to_copy")  # type: ignore[attr-defined]
        values.update((id(old), new.requires_grad_(old.requires_grad)) for old, new in zip(group, read, strict=True))
    return [values[id(tensor)] for tensor in tensors]


class ToXlaTensorArena:
    """Converts the tensors in containers together: ``ToXlaTensorArena(convert, select).transform(data)``."""

    def __init__(
        self,
        convert_fn: Callable[[list[torch.Tensor]], list[torch.Tensor]],
        select_fn: Callable[[Any], bool],
    ) -> None:
        self._convert_fn = convert_fn
        self._select_fn = select_fn

    def transform(self, inputs: Any) -> Any:
        """``inputs`` with the tensors selected replaced by their conversions."""
        found = nested.found(inputs, self._select_fn)
        made = dict(zip(map(id, found), self._convert_fn(found), strict=True)) if found else {}
        return nested.rewritten(inputs, lambda item: id(item) in made, lambda item: made[id(item)])


def check_view_sharing(obj: Any) -> None:
    """Raise ``RuntimeError`` if two tensors in ``obj`` show the same storage."""
    seen: dict[int, torch.Tensor] = {}
    for tensor in nested.tensors(obj, lambda _: True):
        storage = tensor.untyped_storage().data_ptr()
        other = seen.setdefault(storage, tensor) if storage else tensor
        if other is not tensor:
            ids = [f"{id(t)} ({t.dtype}{list(t.shape)})" for t in (tensor, other)]
            raise RuntimeError(f"Tensor ID {ids[0]} is sharing a view with tensor ID {ids[1]}")


def do_on_ordinals(target: Callable[..., Any], data: Any = (), ordinals: Any = (0,)) -> Any:
    """Call ``target(*data)``, tensors on the host, in the processes that ``ordinals`` names; ``None`` in the others."""
    from xlaprof.runtime import distributed  # heavy: torch.distributed and jax's

    running = distributed.global_ordinal() in (ordinals if hasattr(ordinals, "__contains__") else (ordinals,))
    there = _maybe_convert_to_cpu(data, convert=running)
    result = target(*there) if running else None
    distributed.rendezvous("torch_xla.core.xla_model.do_on_ordinals")
    return result


def _fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


# Constants to Dynamo: none changes while a program runs, so none has to break the graph.
for _function in (xla_device, get_xla_supported_devices, xla_real_devices, xla_device_hw, xla_device_kind):
    constant(_function)
