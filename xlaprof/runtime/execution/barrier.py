"""The barrier: the graph of the live tensors runs, and a new trace begins.

Stages: collect the live tensors; find or extract their graph (:mod:`.plans`); find its program, or compile it
(:mod:`.compiling`), and hand it over (:mod:`.run`); give the tensors their arrays; record the barrier.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, NamedTuple

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.recording.recorder import Recorder
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime import metrics
from xlaprof.runtime.clock import aside, clock
from xlaprof.runtime.instruments import hooks, host_time
from xlaprof.runtime.tape import mode, unrolled_loops
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import NOWHERE, Storage
from xlaprof.runtime.trace.trie import Unrolled

from . import failures, guard, inflight, plans
from .inflight import InFlight
from .run import made_at, run_trace


def barrier(
    tape: Tape, trigger: str, *, wait: bool = False, counted: bool = True, frames: tuple[RawFrame, ...] | None = None
) -> None:
    """Cut the tape: execute what its live tensors need, and begin a new trace.

    ``frames``: the user's, if they are known already. With ``wait``, return when the device has finished.

    If the graph fails, values that do not depend on the failure are computed, the error is raised, and the runtime goes
    on (:mod:`.failures`). If it is interrupted (Ctrl-C), the trace stays as it was.
    """
    if mode.dry is not None:
        with tape.lock:
            _cut(tape, trigger, frames or ())
        return
    ends_step = trigger != "read"  # a barrier of :func:`.reads.shed` is not counted or recorded
    rec = recorder.active if ends_step else None
    start = perf_counter_ns()
    if ends_step and counted:
        metrics.count("MarkStep")
    if tape.node is tape.root and rec is None and not wait:  # nothing to run or record
        failures.raise_unreported(tape)
        return
    if frames is None:
        frames = stacks.user_frames(skip=1) if rec is not None else ()
    thread = host_time.arrive(frames) if rec is not None else 0
    lock_start = perf_counter_ns()
    with tape.lock:
        metrics.sample("DeviceLockWait", perf_counter_ns() - lock_start)
        loop = unrolled_loops.of(tape.node) if rec is not None else unrolled_loops.NONE
        cut = _cut(tape, trigger, frames)
    if rec is not None:
        _record(rec, start, trigger, frames, thread, loop, cut)
    if ends_step:
        for notify in hooks.barrier_ended:
            notify(tape, start, rec, cut.fresh)
    if rec is not None:
        rec.turns += 1
        rec.let_writer_in(perf_counter_ns())
        clock.leave(frames, tape.node)
    if wait:
        wait_for(tape, frames)
    else:
        failures.raise_unreported(tape)


def barriers(
    tapes: list[Tape], trigger: str, *, wait: bool = False, frames: tuple[RawFrame, ...] | None = None
) -> None:
    """:func:`barrier` on each of ``tapes``, whatever happens on another; of several errors the first is raised.

    It is one barrier of the program's, on however many devices: one ``MarkStep``.
    """
    first: Exception | None = None
    for i, tape in enumerate(tapes):
        try:
            barrier(tape, trigger, wait=wait, counted=i == 0, frames=frames)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


def wait_for(tape: Tape | None = None, frames: tuple[RawFrame, ...] | None = None) -> None:
    """Wait for all programs handed to ``tape``'s device, or to every device.

    ``frames``: the user's, if they are known already.
    """
    start = perf_counter_ns()
    with aside():
        inflight.wait(tape)
    rec = recorder.active
    if rec is not None:
        if frames is None:
            frames = stacks.user_frames()
        rec.emit(events.DeviceWait(start, perf_counter_ns() - start, rec.stack(frames), rec.here.tid))
        clock.leave(frames, clock.node if tape is None else tape.node)
    failures.raise_unreported(tape)


# -- the stages --------------------------------------------------------------------------------------------


class _Cut(NamedTuple):
    """The result of a barrier."""

    pending: int  # operations on the trace
    run: InFlight | None
    fresh: list[Storage]  # those that had no array before


def _cut(tape: Tape, trigger: str, frames: tuple[RawFrame, ...]) -> _Cut:
    """Run the graph of the live tensors of the tape, which is locked, and begin the next trace."""
    pending = tape.node.depth
    live = _settled(tape)
    guard.require_allowed(tape, live, "a barrier")
    failure = None
    try:
        arrays, run = run_trace(tape, live, trigger, frames, donate=True)
    except Exception as error:
        failure = error
        arrays, run = _salvage(tape, live, error, trigger, frames)
    fresh: list[Storage] = []
    for storage in live:
        if storage.slot in arrays:
            if storage.array is None:
                fresh.append(storage)
            storage.array = arrays[storage.slot]
            if not storage.frames:
                storage.frames = made_at(tape, run, storage.slot)
        else:
            assert failure is not None
            failures.give_up(storage, failure)
        storage.epoch = NOWHERE
    tape.begin(len(fresh))
    if failure is not None:
        raise failure
    return _Cut(pending, run, fresh)


def _settled(tape: Tape) -> list[Storage]:
    """The live storages of the tape, which is locked.

    The thread of a backward pass holds its last values for a moment after the pass. If they would make a new graph, the
    barrier waits for it: compilations must not depend on timing.
    """
    live = tape.live()
    tape.part(live)
    let_go, tape.let_go = tape.let_go, None
    if let_go is None or plans.is_known(tape, live):
        return live
    del live  # it keeps them alive too
    tape.lock.release()
    try:
        let_go()
    finally:
        tape.lock.acquire()
    live = tape.live()
    tape.part(live)
    return live


def _salvage(
    tape: Tape, live: list[Storage], error: Exception, trigger: str, frames: tuple[RawFrame, ...]
) -> tuple[dict[int, Any], InFlight | None]:
    """Arrays of the ``live`` storages that do not depend on what ``error`` ended, and the execution that makes them."""
    for _ in range(failures.ATTEMPTS):
        culprit = getattr(error, "_xla_culprit", None)
        if culprit is None:
            break
        lost = failures.dependents(tape.node, culprit)
        live = [storage for storage in live if storage.slot not in lost]
        try:
            return run_trace(tape, live, trigger, frames, donate=False)
        except Exception as another:  # the caller raises the first error
            error = another
    return {}, None


def _record(
    rec: Recorder,
    start: int,
    trigger: str,
    frames: tuple[RawFrame, ...],
    thread: int,
    loop: Unrolled,
    cut: _Cut,
) -> None:
    rec.emit(
        events.Barrier(
            start,
            perf_counter_ns() - start,
            trigger,
            rec.stack(frames),
            cut.pending,
            clock.take_tracing(),
            cut.run.seq if cut.run is not None else 0,
            thread,
            loop.times,
            rec.stack(loop.frames),
            loop.ops,
            loop.shared,
            list(loop.turns),
            loop.trains,
            loop.learns,
            loop.step,
        )
    )
