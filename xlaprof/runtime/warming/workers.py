"""Programs compiled on other cores, while the program goes on."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter_ns
from typing import NamedTuple

from xlaprof.recording.stacks import RawFrame
from xlaprof.recording.thread_cpu import processors
from xlaprof.runtime.clock import aside
from xlaprof.runtime.execution import compiling
from xlaprof.runtime.execution.build import build
from xlaprof.runtime.execution.program import Plan, Program, Timing, cache
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.trie import Unrolled

#: limit of compilations at a time: each has threads of its own inside of XLA
_MOST = 8


class Made(NamedTuple):
    """A program, and what its making took."""

    program: Program
    timing: Timing
    began: int  # ns
    took: int  # ns


class Job(NamedTuple):
    """A compilation that has been ordered."""

    tape: Tape
    plan: Plan
    loop: Unrolled
    future: Future[Made]

    def record(self, frames: tuple[RawFrame, ...]) -> None:
        """Write it to the log as asked for at ``frames``, once it has ended."""
        self.future.add_done_callback(lambda _: self._record(frames))

    def _record(self, frames: tuple[RawFrame, ...]) -> None:
        if not self.future.cancelled() and self.future.exception() is None:
            program, timing, began, took = self.future.result()
            compiling.record(self.tape, self.plan.graph, program, timing, began, took, "ahead", frames, self.loop)


_pool: ThreadPoolExecutor | None = None


def order(tape: Tape, plan: Plan, loop: Unrolled) -> Job:
    """Have the program of ``plan`` compiled; whoever needs it meanwhile waits for it (:meth:`Cache.awaited`)."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(min(_MOST, processors()), thread_name_prefix="xlaprof-ahead")
        # before the interpreter waits for all that was ordered: a program that has ended needs none of it
        threading._register_atexit(_pool.shutdown, wait=False, cancel_futures=True)  # type: ignore[attr-defined]
    future = _pool.submit(_make, cache.number(), tape, plan)
    cache.promised[plan.key] = future
    future.add_done_callback(lambda _: cache.promised.pop(plan.key, None))
    return Job(tape, plan, loop, future)


def _make(number: int, tape: Tape, plan: Plan) -> Made:
    with aside():
        began = perf_counter_ns()
        program, timing = build(number, plan.key, plan.graph, tape.device, plan.key[2])
        made = Made(program, timing, began, perf_counter_ns() - began)
        compiling.keep(program, "ahead", made.took)
    return made
