"""``warm``: compile what a function will need, for shapes that are still to come."""

from __future__ import annotations

from collections.abc import Callable, Sized
from concurrent.futures import wait as wait_for_all
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

from xlaprof.recording import recorder, stacks
from xlaprof.recording.trace import Trace
from xlaprof.runtime.clock import clock
from xlaprof.runtime.execution import barrier, failures
from xlaprof.runtime.execution.program import Plan, cache
from xlaprof.runtime.modes import barriers
from xlaprof.runtime.tape import mode, tapes, unrolled_loops
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.trie import Unrolled

from . import effects
from .dry_run import DryRun, stand_in
from .workers import Job, order

#: a call is made until it finds no new graph, and no more often than this
_CALLS = 3


class Warmed(NamedTuple):
    """What :func:`warm` has found: ``graphs``, of which ``compiled`` had no program yet. ``wait()`` for those."""

    graphs: int
    compiled: int
    jobs: tuple[Job, ...] = ()

    def wait(self) -> Warmed:
        """Return when all programs are there. Raises the error of one that cannot be compiled, as a barrier does."""
        for job in self.jobs:
            try:
                job.future.result()
            except Exception as error:
                raise failures.explain(error, job.tape, job.plan.graph, ()) from error
        return self


def warm(function: Callable[..., Any], *calls: Any, wait: bool = True, reads: float = 0.0) -> Warmed:
    """Compile the programs that ``function`` will need for ``calls``, several at a time, before it is called.

    ::

        xr.warm(train_step, (batch(64),), (batch(128),), (batch(256),))   # three sizes, in parallel
        later = xr.warm(evaluate, (images,), wait=False)                    # while the training goes on
        later.wait()

    Each call is a tuple of arguments, or one argument alone. A tensor on ``meta`` (``torch.empty(64, 128,
    device="meta")``) stands for one of its shape on ``xla``, without memory for it. The function is called with them,
    up to three times, until it needs no new graph; a barrier follows each call. The device runs nothing meanwhile:
    a value that the function reads is ``reads``. Afterwards all that is on the device is as before, and so are modules,
    gradients, optimizers, learning-rate schedulers, gradient scalers and random states. What else the function does, it
    does: it prints, appends to lists, writes files; a tensor that it keeps in a list raises an error when it is used.

    With ``wait=False`` the programs are compiled in the background. A barrier that needs one of them waits for it; so
    does another ``warm()``.

    What is pending runs first, as at a barrier. Raises what the function raises; ``RuntimeError`` in eager mode, for
    several devices as one (SPMD), for graphs with collectives, within ``torch.compile(backend="openxla")``, or if a
    program cannot be compiled.
    """
    _require_lazy()
    frames = stacks.user_frames(skip=1)
    barriers.sync(reset_scope=False)
    seen: dict[Any, tuple[Tape, Plan, Unrolled]] = {}
    jobs: list[Job] = []

    def found(tape: Tape, plan: Plan) -> None:
        seen.setdefault(plan.key, (tape, plan, unrolled_loops.of(tape.node)))

    with Trace("xlaprof.runtime.warm"):
        rec, recorder.active = recorder.active, None  # its steps, reads and barriers are none of the program's
        try:
            wait_for_all(cache.promised.values())
            _rehearse(function, calls, DryRun(found, reads), seen)
            jobs = [order(*one) for key, one in seen.items() if cache.peek(key) is None]
        finally:
            recorder.active = rec
            clock.leave(frames, None)
        for job in jobs:
            job.record(frames)
        warmed = Warmed(len(seen), len(jobs), tuple(jobs))
        if wait:
            warmed.wait()
    return warmed


def _rehearse(function: Callable[..., Any], calls: tuple[Any, ...], dry: DryRun, seen: Sized) -> None:
    undo = effects.remember()
    try:
        with dry:
            for call in calls or ((),):
                for _ in range(_CALLS):
                    before = len(seen)
                    result = function(*_arguments(call))  # alive at the barrier, as the caller's is
                    barriers.cut("sync")
                    del result
                    if len(seen) == before:
                        break
    finally:
        for put_back in undo:
            put_back()
        dry.mark_survivors(effects.tensors())


def _arguments(call: Any) -> tuple[Any, ...]:
    """The arguments of one call, with tensors on ``xla`` in place of those on ``meta``."""

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "meta":
            return stand_in(tuple(value.shape), value.dtype).requires_grad_(value.requires_grad)
        return value

    found: tuple[Any, ...] = tree_map(real, call if isinstance(call, tuple) else (call,))
    return found


def _require_lazy() -> None:
    if mode.dry is not None:
        raise RuntimeError("warm() is at work already: call it outside of the function that it is given")
    if mode.run_recorded is not None:
        raise RuntimeError("warm() has nothing to compile in eager mode: each operation is a program of its own")
    if tapes.together():
        raise RuntimeError("warm() compiles for one device: SPMD lays out values that a dry run does not have")
    barrier.wait_for()
