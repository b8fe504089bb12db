"""The devices of this process: one tape for each."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import jax
import torch

from xlaprof.runtime import metrics, parity

from . import mode, op_counters
from .tape import Tape

# Doors for higher rooms: :mod:`xlaprof.runtime.wiring` and the observer of recordings set these.
#: called before jax has a backend: a process of a job joins the others (afterwards it is too late)
join_job: Callable[[], None] | None = None
#: makes the :attr:`Tape.partition` of a virtual device (SPMD)
make_partition: Callable[[tuple[jax.Device, ...]], Any] | None = None
#: called when a device is used for the first time
opened: Callable[[Tape], None] | None = None

_tapes: dict[int, Tape] = {}
_lock = threading.Lock()
_current = threading.local()
_closed: Callable[[], Exception] | None = None


@cache
def devices() -> tuple[jax.Device, ...]:
    """jax's devices behind ``xla:0``, ``xla:1``...: those of ``PJRT_DEVICE`` (CPU, CUDA, TPU), by default the best.

    Raises ``RuntimeError``, naming the platforms there are, if ``PJRT_DEVICE`` is not among them.
    """
    platform = os.environ.get("PJRT_DEVICE", "").strip().lower()
    if platform in ("", "cpu"):
        _ask_for_cpu_devices()
    if join_job is not None:
        join_job()
    if not platform:
        return tuple(jax.local_devices())
    try:
        return tuple(jax.local_devices(backend="cuda" if platform == "gpu" else platform))
    except RuntimeError as error:
        here = jax.default_backend()
        raise RuntimeError(
            f"PJRT_DEVICE={os.environ['PJRT_DEVICE']} is not available here (jax has: {here}): "
            f"unset PJRT_DEVICE or install jax for it ({str(error).splitlines()[0]})"
        ) from error


def all_devices() -> tuple[jax.Device, ...]:
    """:func:`devices` of all processes of the job, in the same order in each."""
    there: list[jax.Device] = jax.devices(devices()[0].platform)
    return tuple(sorted(there, key=lambda device: (device.process_index, device.id)))


def _ask_for_cpu_devices() -> None:
    """Have jax make ``CPU_NUM_DEVICES`` (PyTorch/XLA's variable) devices of the CPU, if that is still possible."""
    given = os.environ.get("CPU_NUM_DEVICES")
    if not given:
        return
    if not given.isdecimal() or not int(given):
        raise RuntimeError(f"CPU_NUM_DEVICES={given} is no number of devices: set it to 1, 2, 4...")
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return  # the same setting, jax's own
    try:
        jax.config.update("jax_num_cpu_devices", int(given))
    except RuntimeError:
        if len(there := jax.local_devices(backend="cpu")) != int(given):
            warnings.warn(
                f"CPU_NUM_DEVICES={given}, but jax was used before and has {len(there)}: use xla first", stacklevel=2
            )


_together: bool | None = None


def together() -> bool:
    """Is there one virtual device ``xla:0`` for all of :func:`devices` (SPMD), instead of one for each?

    ``XLA_USE_SPMD`` decides until a device is used, then :func:`switch` alone.
    """
    return asked_for_spmd() if _together is None else _together


def asked_for_spmd() -> bool:
    """Is ``XLA_USE_SPMD`` set?"""
    return os.environ.get("XLA_USE_SPMD", "0").lower() in ("1", "true", "on", "yes")


def switch(virtual: bool) -> dict[int, Tape]:
    """Use one virtual device for all from now on, or not; return the tapes that were in use before."""
    global _together, _tapes
    with _lock:
        before: dict[int, Tape] = {}
        if _together is not None and virtual is not _together:
            before = _aside[_together] = _tapes
            _tapes = _aside.pop(virtual, {})
        _together = virtual
    return before


_aside: dict[bool, dict[int, Tape]] = {}


def device_type() -> str:
    """``"CPU"``, ``"CUDA"`` or ``"TPU"``."""
    platform = str(devices()[0].platform).upper()
    return {"GPU": "CUDA"}.get(platform, platform)


def count() -> int:
    """Number of ``xla`` devices of this process; 1 under SPMD."""
    return 1 if together() else len(devices())


def _new(index: int) -> Tape:
    """A tape for the device ``xla:index``."""
    global _together
    there = devices()
    if not 0 <= index < count():
        raise RuntimeError(f"xla:{index} is no device: this process has {count()} (xla:0 to xla:{count() - 1})")
    _together = together()
    made = Tape(index, there[index])
    if _together:
        assert make_partition is not None
        made.partition = make_partition(all_devices())
    made.turn(mode.run_recorded is not None)
    return made


def tape(index: int | None = None) -> Tape:
    """The tape of ``xla:index``; of the current device by default."""
    if _closed is not None:
        raise _closed()
    if index is None:
        index = current()
    found = _tapes.get(index)
    sketch = getattr(_current, "sketch", None)
    if sketch is not None and sketch.index == index:
        return cast(Tape, sketch)
    if found is None:
        with _lock:
            found = _tapes.get(index)
            if found is None:
                found = _tapes[index] = _new(index)
        if opened is not None:
            opened(found)
    return found


def of_device(device: torch.device | str | None) -> Tape:
    """The tape of a ``torch.device``."""
    return tape(torch.device(device).index if device is not None else None)


def current() -> int:
    """Index of this thread's current ``xla`` device."""
    return getattr(_current, "index", 0)


@contextmanager
def sketching(sketch: Tape) -> Iterator[None]:
    """Within, this thread records on ``sketch`` in place of its device's tape."""
    before, _current.sketch = getattr(_current, "sketch", None), sketch
    try:
        yield
    finally:
        _current.sketch = before


def set_current(index: int | torch.device) -> None:
    """Make ``xla:index`` this thread's current device."""
    given = index.index if isinstance(index, torch.device) else index
    _current.index = tape(0 if given is None else given).index


def _count_open() -> None:
    """Count the operations of traces that have not ended."""
    op_counters.add_up()
    for tape in existing():
        with tape.lock:
            op_counters.recorded(tape.node, tape.counted)
            tape.counted = tape.node.depth


metrics.before_reading(_count_open)


def _forget() -> None:
    for tape in existing():
        tape.forget()


parity.on_change.append(_forget)


def close(error: Callable[[], Exception]) -> None:
    """From now on there is no device: every use raises ``error()``."""
    global _closed, _lock
    _closed, _lock = error, threading.Lock()
    _tapes.clear()


def existing() -> list[Tape]:
    """The tapes that are in use."""
    return list(_tapes.values())
