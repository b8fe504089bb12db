"""The functions of ``torch_xla`` itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import xlaprof.runtime as _runtime
from xlaprof.runtime import compile, set_custom_compile_options, step, sync
from xlaprof.runtime.dynamo.constants import constant
from xlaprof.runtime.pytorch import fork_guard
from xlaprof.runtime.tape import tapes
from xlaprof.torch_xla._random import set_rng_state

__all__ = [
    "compile",
    "device",
    "device_count",
    "devices",
    "launch",
    "manual_seed",
    "real_devices",
    "set_custom_compile_options",
    "step",
    "sync",
]


def device(index: int | None = None) -> torch.device:
    """The device ``xla:index``, which becomes this thread's current device; by default the current one.

    Raises ``IndexError`` where there is no such device.
    """
    if index is None:
        # A forked child cannot compute, but may well name the device: test runners and launchers do.
        return torch.device("xla", tapes.current()) if fork_guard.in_child() else tapes.tape().torch_device
    there = devices()
    if not 0 <= index < len(there):
        raise IndexError(f"Device index {index} out of range in {[str(d) for d in there]}")
    tapes.set_current(index)
    return there[index]


def devices() -> list[torch.device]:
    """The devices of this process."""
    return [torch.device("xla", i) for i in range(tapes.count())]


def real_devices() -> list[str]:
    """The hardware devices of this process: ``["CPU:0", "CPU:1"]``."""
    return [f"{_runtime.device_type()}:{d.id}" for d in tapes.devices()[: tapes.count()]]


def device_count() -> int:
    """How many devices this process has."""
    return tapes.count()


def manual_seed(seed: int, device: torch.device | str | None = None) -> None:
    """Seed the random numbers of ``device``, by default the current one."""
    set_rng_state(seed, device)


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
    **more: Any,
) -> Any:
    """Run ``fn(index, *args)`` in one process per device: :func:`xlaprof.runtime.distributed.launch`."""
    from xlaprof.runtime import distributed  # heavy: torch.distributed and jax's

    return distributed.launch(fn, args, start_method=start_method, debug_single_process=debug_single_process, **more)


# Constants to Dynamo: none changes while a program runs, so none has to break the graph.
for _function in (device, devices, real_devices, device_count):
    constant(_function)
