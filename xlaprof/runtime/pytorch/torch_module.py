"""``torch.xla``: what PyTorch expects of every device's module (random state for checkpoints, current device...).

``torch.accelerator``, where programs look for the device to compute on, answers for ``xla`` too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

import torch

from xlaprof.import_hook import is_pytorch
from xlaprof.runtime.execution import memory
from xlaprof.runtime.modes import barriers
from xlaprof.runtime.tape import randomness, tapes

from . import fork_guard

_Device = int | str | torch.device | None


@contextmanager
def device(index: _Device) -> Iterator[None]:  # named as torch.cuda.device is
    """Context in which ``xla:index`` is the current device; for ``None`` it stays as it is."""
    before = tapes.current()
    if index is not None:
        tapes.set_current(_index(index) or 0)
    try:
        yield
    finally:
        tapes.set_current(before)


def synchronize(device: int | torch.device | None = None) -> None:
    """Run what is recorded, and return when the devices are done."""
    barriers.sync(wait=True, reset_scope=False)


def get_device_name(device: _Device = None) -> str:
    """What jax calls the device: ``"cpu"``, ``"TPU v4"``, ``"NVIDIA A100-SXM4-40GB"``..."""
    return str(tapes.tape(_index(device)).device.device_kind)


def memory_allocated(device: _Device = None) -> int:
    """Bytes on the device that belong to tensors; :func:`xlaprof.runtime.memory_info` says to which."""
    return memory_stats(device)["allocated_bytes.all.current"]


def memory_stats(device: _Device = None) -> dict[str, int]:
    """Bytes that belong to tensors now, and the most that there were; jax keeps none in reserve that it would show."""
    info = memory.memory_info(tapes.tape(_index(device)).torch_device)
    peak = info.bytes_in_use if info.peak_bytes is None else info.peak_bytes
    sizes = {"current": info.bytes_in_use, "peak": peak}
    return {f"{kind}_bytes.all.{when}": sizes[when] for kind in ("allocated", "reserved") for when in sizes}


def _index(device: _Device) -> int | None:
    if device is None or isinstance(device, int):
        return device
    given = torch.device(device)
    if given.type != "xla":
        raise ValueError(f"Expected a xla device, but got: {given}")
    return given.index


def _no_streams(*_: Any) -> NoReturn:
    raise NotImplementedError(
        "xla has no streams: its programs run in the order of their barriers; torch.accelerator.synchronize() waits"
    )


#: names in ``torch.accelerator`` -> what they are for ``xla``
ANSWERS: dict[str, Callable[..., Any]] = {
    "current_accelerator": lambda check_available=False: torch.device("xla"),
    "is_available": lambda: True,
    "device_count": tapes.count,
    "current_device_index": tapes.current,
    "current_device_idx": tapes.current,
    "set_device_index": lambda device: tapes.set_current(_index(device) or 0),
    "set_device_idx": lambda device: tapes.set_current(_index(device) or 0),
    "device_index": device,
    "synchronize": synchronize,
    "current_stream": _no_streams,
    "set_stream": _no_streams,
    "memory_stats": memory_stats,
    "memory_allocated": memory_allocated,
    "memory_reserved": memory_allocated,
    "max_memory_allocated": lambda device=None: memory_stats(device)["allocated_bytes.all.peak"],
    "max_memory_reserved": lambda device=None: memory_stats(device)["reserved_bytes.all.peak"],
    **dict.fromkeys(
        ("empty_cache", "empty_host_cache", "reset_accumulated_memory_stats", "reset_peak_memory_stats"),
        lambda device=None: None,
    ),
}


def _theirs(name: str) -> Callable[..., Any]:
    """PyTorch's own function."""
    now = getattr(torch.accelerator, name)
    found: Callable[..., Any] = getattr(now, "theirs", now)  # import_hook's waits for the program to ask
    return found


_is_available = _theirs("is_available")


def _answering(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """``ours`` for programs and libraries, unless PyTorch's own accelerator is there.

    PyTorch's own modules get ``theirs``, unless they name an ``xla`` device. They look for streams, events and pinned
    memory, which ``xla`` has not: ``DataLoader(pin_memory=True)``, ``DataParallel`` and the optimizers would raise.
    """

    @functools.wraps(theirs)
    def answer(*args: Any, **kwargs: Any) -> Any:
        names_it = any(isinstance(value, torch.device) and value.type == "xla" for value in args)
        asks_for_theirs = not names_it and (is_pytorch(sys._getframe(1)) or _is_available())
        return (theirs if asks_for_theirs else ours)(*args, **kwargs)

    return answer


def install() -> None:
    """Make ``torch.xla`` (``torch.get_device_module("xla")``)."""
    for name, ours in ANSWERS.items():
        if hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, _answering(_theirs(name), ours))
    if hasattr(torch, "xla"):
        return
    module = ModuleType("torch.xla", __doc__)
    module.__dict__.update(
        device=device,
        device_count=tapes.count,
        current_device=tapes.current,
        set_device=tapes.set_current,
        is_available=lambda: True,
        is_initialized=lambda: True,
        _initialized=True,
        _is_in_bad_fork=fork_guard.in_child,
        synchronize=synchronize,
        get_device_name=get_device_name,
        memory_allocated=memory_allocated,
        empty_cache=lambda: None,  # no cache: a buffer is freed with its last tensor
        is_bf16_supported=lambda: True,
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        manual_seed=lambda seed: randomness.manual_seed(seed),
        manual_seed_all=randomness.manual_seed_all,
        seed=lambda: randomness.manual_seed(torch.Generator().seed()),
        seed_all=lambda: randomness.manual_seed_all(torch.Generator().seed()),
        initial_seed=lambda: randomness.initial_seed(),
        get_rng_state=randomness.get_rng_state,
        set_rng_state=randomness.set_rng_state,
        get_rng_state_all=randomness.get_rng_state_all,
        set_rng_state_all=randomness.set_rng_state_all,
    )
    torch._register_device_module("xla", module)
