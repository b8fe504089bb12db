"""The barriers that users call, and the step of an optimizer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from xlaprof.recording import recorder, stacks
from xlaprof.runtime.execution import barrier
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace import source

from . import closures


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """The barrier: run the graph of the live tensors, on every device in use, and begin a new trace.

    Returns once the work is handed over; with ``wait=True`` (or ``XLA_SYNC_WAIT=1``), once it is done. Then step
    closures are called. Raises ``torch.OutOfMemoryError`` if memory does not suffice, and ``RuntimeError`` if a graph
    fails otherwise, now or since the last barrier; both name the operation and the line. Values that do not depend on
    it are computed, and the runtime goes on.

    Inside of the profiler's ``Trace``, which names operations of one graph, it raises ``RuntimeError``, as PyTorch/XLA
    does; ``reset_scope=False`` allows it. :class:`xlaprof.Trace` has no such limit.
    """
    _barrier("sync", wait, reset_scope)


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """:func:`sync` under the name older PyTorch/XLA scripts use."""
    _barrier("mark_step", wait, reset_scope)


def _barrier(trigger: str, wait: bool, reset_scope: bool) -> None:
    if reset_scope and (scopes := source.scopes()):
        raise RuntimeError(
            f"Expecting scope to be empty but it is {'/'.join(f'{name}.1' for name in scopes)}: "
            "a barrier cuts the graph that the scope is of; leave the Trace first, or use StepTrace or xlaprof.Trace"
        )
    # read here, two frames below the caller: further inside there are more of our own frames to skip
    frames = stacks.user_frames(skip=2) if recorder.active is not None else None
    wait = wait or os.environ.get("XLA_SYNC_WAIT", "0").lower() in ("1", "true", "on", "yes")
    cut(trigger, wait, frames)


def cut(trigger: str, wait: bool = False, frames: tuple[stacks.RawFrame, ...] | None = None) -> None:
    """A barrier on every device in use, called ``trigger`` in the log; then step closures are called."""
    barrier.barriers(tapes.existing() or [tapes.tape()], trigger, wait=wait, frames=frames)
    closures.run()


_tracer_marked_step = False


def set_tracer_marked_step(value: bool) -> None:
    """Set whether a profiler's ``StepTrace`` makes the barrier of this step: the device loader then makes none."""
    global _tracer_marked_step
    _tracer_marked_step = value


def get_tracer_marked_step() -> bool:
    """Does a profiler's ``StepTrace`` make the barrier of this step?"""
    return _tracer_marked_step


def wait_device_ops(devices: Sequence[torch.device | str] | None = ()) -> None:
    """Wait for the programs handed to ``devices``, by default all. Nothing new runs."""
    frames = stacks.user_frames(skip=1) if recorder.active is not None else None
    for device in devices or ():
        barrier.wait_for(tapes.of_device(device), frames)
    if not devices:
        barrier.wait_for(None, frames)


#: Averages the gradients of an optimizer over groups of ranks; set by :mod:`xlaprof.runtime.distributed`, which a job
#: of several processes imports when it joins.
reduce_gradients: Callable[..., None] | None = None


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: Mapping[str, Any] | None = None,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
) -> Any:
    """Average the gradients of the parameters over all processes, then ``optimizer.step(**optimizer_args)``.

    ``groups``: lists of ordinals that average among themselves. With ``barrier``, :func:`sync` follows; a device loader
    has one for each batch. Returns the optimizer's result. ``pin_layout`` is PyTorch/XLA's.
    """
    if reduce_gradients is not None:
        reduce_gradients(optimizer, groups=groups, pin_layout=pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss
