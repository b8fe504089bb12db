"""The totals of a recording: one handler per kind of event, each of constant cost.

Nothing is concluded here; :mod:`xlaprof.analysis.summary` and the findings do that from these totals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from xlaprof import events as ev
from xlaprof.analysis.sums import RECORDS, add_bounded, kept, tally_of
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import SampleSpan, Seen
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.analysis.timeline.standing import Standing

from .alive import Alive
from .cuda_graphs import CudaGraphs
from .cuts import Cuts
from .distribution import Distribution
from .frozen import Frozen
from .jit import Jit
from .reads_and_fallbacks import PLACES, ReadsAndFallbacks, pair
from .tallies import FEW, CompileBill, CompileRecord, PauseTally, ScopeTally, Site, StepTally, Timed, times_run
from .torch_compile import TOLD, TorchCompile
from .torch_tpu import TorchTpu

PROGRAMS = 20_000  # programs whose last run is remembered
AT_ONCE = 200_000  # ns, at most, between the end of a transfer and the end of its operation
_INNER = 32  # turns of a training's inner loop, as of a critic; more are an epoch's
_NAMES = _THREADS = 1_024  # names of steps, and threads, kept apart
_DEEPEST = 1000  # nesting of scopes kept apart
_Looks = dict[tuple[int, str], int]  # stack, state -> ns

#: state of a sample -> the cause it counts for
_STATES = {
    "data": host.DATA, "checkpoint": host.CHECKPOINT, "gil": host.GIL, "wait": host.WAIT, "cpu": host.CPU,
    "call": host.DISPATCH, "torch": host.TRACING, "import": host.IMPORT, "": host.GLIMPSE,
}  # fmt: skip

#: Name id of steps that were inferred from barriers, which have no name.
INFERRED = 0


class Totals(ReadsAndFallbacks):
    """The totals of one recording so far. Ids are the recording's own; lengths and moments are nanoseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[int, StepTally] = {}
        self.scopes: dict[int, ScopeTally] = {}
        self.sites: dict[int, Site] = {}
        self.compiles: list[CompileRecord] = []
        self.compile_bill = CompileBill()
        self.executed, self.barriers = Timed(), 0
        self.programs: dict[int, int] = {}  # program -> moment it was last enqueued
        self.program_runs: dict[int, int] = {}  # program -> runs
        self.program_busy: dict[int, int] = {}  # program -> ns the device was busy with it
        self.program_rhythms: dict[int, Rhythm] = {}  # program -> its turns among the executions at its barrier
        self.cuts = Cuts()
        self.executed_at: dict[int, Timed] = {}  # stack -> executions there, and how long the device was busy with them
        self.pauses: dict[tuple[int, int], PauseTally] = {}  # (stack, DATA or GC)
        self.batches: list[ev.Batches] = []
        # what looks at the main thread found before the first program, since, and in waits (a batch, the device)
        self.looks_before, self.looks, self.looks_drawing = _Looks(), _Looks(), _Looks()
        self.looks_waiting, self.look_counts = _Looks(), _Looks()
        self.standing = Standing()
        self.looks_limited: dict[int, int] = {}  # stack -> ns, since torch.compile hit a limit
        self.recording: set[int] = set()  # stacks at which operations were recorded, next to a hole
        self.samples = 0  # of the main thread, in its long gaps
        self.holders: dict[int, str] = {}  # stack -> name of the thread that the main thread waited for
        self.breaks: dict[tuple[int, str, int], int] = {}
        self.torch_compile, self.cuda_graphs, self.torch_tpu = TorchCompile(), CudaGraphs(), TorchTpu()
        self.jit, self.frozen, self.alive = Jit(), Frozen(), Alive()
        self.main_barrier: Site | None = None  # the barrier that ends a step
        self.trains = False  # graphs train
        self.inferred: list[tuple[int, int]] | None = None  # begins and ends of all such steps, if somebody asks
        self.inner = 0  # visits of others that may end a step since its last one
        self.main_stack = 0
        self.main_ops = 0  # operations of the graph that ended the last step
        self.graph_cut = False  # something cut the graph since the last step
        self.child_ns: dict[int, list[int]] = {}  # thread -> ns of ended scopes by depth, not yet claimed by a parent
        self.barriers_since_step: deque[tuple[Site, int]] = deque(maxlen=RECORDS)  # barriers since the last step
        #: the method that counts an event, by its kind
        self.handlers: dict[type, Callable[[Any], None]] = {
            ev.Text: self.names.on_text,
            ev.Stack: self.names.on_stack,
            ev.Device: self._on_device,
            ev.Source: self._on_source,
            ev.Dropped: self._on_dropped,
            ev.End: self._on_end,
            ev.Scope: self._on_scope,
            ev.Step: self._on_step,
            ev.StepDigest: self._on_digest,
            ev.Compiling: self._on_compiling,
            ev.Compile: self._on_compile,
            ev.Barrier: self._on_barrier,
            ev.Execute: self._on_execute,
            ev.TransferToDevice: self._on_upload,
            ev.TransferFromDevice: self._on_read,
            ev.DeviceWait: self._on_wait,
            ev.Fallback: self._on_fallback,
            ev.Gc: self._on_gc,
            ev.DataWait: self._on_data,
            ev.Batches: self._on_batches,
            ev.Hole: self._on_hole,
            ev.Live: self._on_live,
            ev.Evicted: self.alive.on_evicted,
            ev.Selected: self._on_selected,
            ev.Sample: self._on_sample,
            ev.Look: self._on_look,
            ev.GraphBreak: self._on_break,
            ev.Counters: self._on_counters,
            ev.DynamoCompile: self._on_dynamo_compile,
            ev.JitCompile: self._on_jit_compile,
            ev.Recompile: self._on_dynamo_recompile,
            ev.DynamoLimit: self._on_dynamo_limit,
            **dict.fromkeys((*TOLD, ev.CudaGraph, ev.NoCudaGraph), self._on_torch),
            ev.FrozenCompile: self._on_frozen,
            ev.TorchTpuBatch: self._on_torch_tpu,
            **self.jit.handlers,
        }

    def distributions(self) -> Iterator[Distribution]:
        """All distributions among the totals."""
        for scope in self.scopes.values():
            yield scope.total
        for site in self.sites.values():
            yield site.dispatch
        for step in self.steps.values():
            yield step.rest

    def _on_live(self, event: ev.Live) -> None:
        self.alive.add(event, self.steps_ended)

    # -- host intervals

    def _on_scope(self, event: ev.Scope) -> None:
        start, dur, name, depth = event.t, event.dur, event.name, event.depth
        end = start + dur
        tally = self.scopes.get(name)
        if tally is None:
            tally = tally_of(self.scopes, name, PLACES, 0, ScopeTally)
        tally.total.add_word(dur)
        if depth > _DEEPEST:
            depth = _DEEPEST
        tid = event.tid
        inner = self.child_ns.get(tid)
        if inner is None:
            inner = tally_of(self.child_ns, tid, _THREADS, -1, lambda: [0, 0])
        deeper = depth + 1
        if deeper >= len(inner):
            inner.extend([0] * (deeper + 1 - len(inner)))
        own = dur
        if inner[deeper]:
            own -= inner[deeper]
            inner[deeper] = 0
        if own > 0:
            tally.own += own
        if depth:
            inner[depth] += dur
        tally.errors += bool(event.error)
        if tally.last_step != self.steps_ended and start >= self.steps_ended_at:  # else steps lie in it
            tally.add_steps((self.steps_ended,))
        tally.stack = tally.stack or event.stack
        if tid == self.main_thread:
            floor = self.window.steps_end
            self._paint((start if start > floor else floor, end, host.SCOPE + name, 0))
        if end > self.last:
            self.last = end

    def _on_gc(self, event: ev.Gc) -> None:
        self._paint((event.t, event.t + event.dur, host.GC, event.stack))
        self.add_pause(event.stack, host.GC, PauseTally(1, event.dur, event.dur))

    def _on_data(self, event: ev.DataWait) -> None:
        if event.tid == self.main_thread:
            self._paint((event.t, event.t + event.dur, host.DATA, event.stack))
            self.add_pause(event.stack, host.DATA, PauseTally(1, event.dur, event.dur))

    def _on_batches(self, event: ev.Batches) -> None:
        if len(self.batches) < RECORDS:
            self.batches.append(event)

    def _on_wait(self, event: ev.DeviceWait) -> None:
        if event.tid == self.main_thread:
            self._paint((event.t, event.t + event.dur, host.TRANSFER, event.stack))
            self._add_wait((event.t, event.t + event.dur, event.dur))
            self.jit.on_wait(event, self.steps_ended)

    def _on_hole(self, event: ev.Hole) -> None:
        if event.tid == self.main_thread:
            start, before, after = event.t, event.before, event.after
            end = start + event.dur
            if len(self.recording) < PROGRAMS:
                self.recording.add(before)
                self.recording.add(after)
            known, place = self.last_transfer
            if place and start - AT_ONCE < known < end:  # the transfer's line is nearer to the end
                if known > start:
                    self.window.add_hole(start, known, before, place)
                    start = known
                before = place
            self.window.add_hole(start, end, before, after)

    def _on_sample(self, event: ev.Sample) -> None:
        if event.tid == self.main_thread:
            self.samples += 1
            seen = Seen(_STATES.get(event.state, host.OTHER), event.stack, event.at)
            self.window.add_sample(SampleSpan(event.t, event.t + event.dur, seen))
            if event.holder and len(self.holders) < RECORDS:
                self.holders[event.at] = event.holder

    def _on_look(self, event: ev.Look) -> None:
        apart = {"data": self.looks_drawing, "device": self.looks_waiting}
        looks = apart.get(event.state, self.looks if self.executed.count else self.looks_before)
        add_bounded(looks, (event.stack, event.state), event.dur, RECORDS)
        add_bounded(self.look_counts, (event.stack, event.state), 1, RECORDS)
        if event.state != "device":  # which comes beside all others
            self.standing.add(event, self.names.place(event.stack).at)
            if self.torch_compile.limited:
                add_bounded(self.looks_limited, event.stack, event.dur, RECORDS)
        self.cover(event.t, event.t + event.dur)

    def add_pause(self, stack: int, cause: int, pauses: PauseTally) -> None:
        """The host waited for data or collected garbage: ``cause`` is DATA or GC."""
        kept(self.pauses, (stack, cause), RECORDS, PauseTally).merge(pauses)

    # -- the runtime's work; the program waits for it, on whatever thread it is

    def _on_compiling(self, event: ev.Compiling) -> None:
        self.compilation_begins(event)
        self.cover(event.t, event.t)

    def _on_compile(self, event: ev.Compile) -> None:
        self.compile_bill.add(event)
        self.frozen.on_compiled(event)
        end = event.t + event.dur
        if event.trigger != "ahead":  # those are made by other threads, and the host goes on
            self._paint((event.t, end, host.COMPILE, event.stack))
            self.window.schedule.compiles.append((event.t, end, event.ops))
        site = tally_of(self.sites, event.stack, PLACES, 0, Site)
        if event.trigger == "read":
            self.compiled_for_read += event.dur
            site.trigger = event.trigger
            site.grow(event.ops)
            site.repeat(event)
        elif event.trigger == "dynamo":
            self.torch_compile.on_lowered(event)
        if len(self.compiles) < RECORDS:
            self.compiles.append(CompileRecord.of(event, site, self.step_num + 1))
        site.compiled(event)
        self.compiling, self.now, self.program = None, ("running", end), max(self.program, event.program)
        self.cover(event.t, end)

    def _on_barrier(self, event: ev.Barrier) -> None:
        start, dur, stack, trigger = event.t, event.dur, event.stack, event.trigger
        end = start + dur
        self.barriers += 1
        if dur:
            self._paint((start, end, host.DISPATCH, stack))
        self.window.add_barrier(start, end, event.tracing, event.ops)
        site = self.sites.get(stack)
        if site is None:
            site = tally_of(self.sites, stack, PLACES, 0, Site)
        site.trigger = trigger
        site.visits += 1
        if event.loops > site.loops:
            site.repeat(event)
        if event.execution:
            site.ran((event.ops,))
            site.dispatch.append(dur)
            self.barriers_since_step.append((site, start))
            if trigger != "read" and not self.main_known:
                self._infer_step(site, stack, end, event)
        if trigger != "read":
            self.claim_for_loop()  # also where nothing was left to run
            self.graph_cut = True
            self.last_barrier = end
        self.cover(start, end)

    def _infer_step(self, site: Site, stack: int, end: int, event: ev.Barrier) -> None:
        """Without a StepTrace a step lasts from one visit to the next of the barrier that is reached most often.

        Where graphs train, only those end steps; another barrier that ends the same graph (one for the log, at the end
        of an epoch) counts as that one, and so does its own line in a loop that is called from elsewhere. One in a loop
        inside a step (over tensors, a critic's updates) is none.
        """
        trains, main = event.trains, self.main_barrier
        if trains and not self.trains:
            self.trains, self.main_barrier, self.step_num = True, None, -1
            self._forget_steps()
            for one in self.sites.values():
                one.ends = 0
        elif self.trains and not trains:
            return
        if main is not None and site is not main:
            alike = trains and main.ends > 1 and event.ops == self.main_ops
            if alike or self.names.same_turn(stack, self.main_stack):
                site, stack = main, self.main_stack
        site.ends += 1
        self.inner = 0 if site is self.main_barrier else self.inner + 1
        if site.ends == 1:
            if self.main_barrier is None:
                self.steps_ended += 1
                self.step_num += self.trains
            site.start = self.last_barrier or self.begin or 0
        elif self._ends_step(site, stack):
            if site.ends == 2:
                self._forget_steps()  # pieces of the step that ends here
                site.start = min(site.start, main.start if main is not None else site.start)
            _, tally = self._step_tally(INFERRED)
            if site.ends == 2:
                tally.add(0, site.end - site.start)
                self.window.add_step(INFERRED, 0, site.start, site.end, first=True, named=False)
                self._tell_step(site.start, site.end)
            self.main_barrier, self.main_stack, self.main_ops = site, stack, event.ops
            self.step_num = tally.count
            tally.add(self.step_num, end - site.end)
            self.steps_ended = self.step_num + 1  # without pieces of steps that were taken for steps
            self.window.add_step(INFERRED, self.step_num, site.end, end, first=False, named=False)
            self._tell_step(site.end, end)
            self.now = ("running", end)
        site.end = end

    def _tell_step(self, start: int, end: int) -> None:
        if self.inferred is not None:
            self.inferred.append((start, end))

    def _forget_steps(self) -> None:
        if self.inferred is not None:
            self.inferred.clear()
        self.steps.pop(INFERRED, None)
        self.window.open_steps.clear()

    def _ends_step(self, site: Site, stack: int) -> bool:
        main = self.main_barrier
        if main is None or main is site:
            return main is site or not self._is_piece(site, stack)
        if self.trains and self.inner <= _INNER:
            if self.names.is_outside(self.main_stack, stack):
                return False
            few = site.ends == 2 and main.ends <= _INNER * 2
            if few and site.last_ops >= self.main_ops and self.names.is_outside(stack, self.main_stack):
                return True
        if site.ends > main.ends:
            return not self._is_piece(site, stack)
        return site.ends == 2 and self._is_piece(main, self.main_stack)

    def _is_piece(self, site: Site, stack: int) -> bool:
        """Whether the barrier runs little, in a loop inside that of a barrier that runs more."""
        if not site.piece and site.ops <= FEW * site.executed:
            site.piece = any(
                one.trigger != "read" and one.ops > FEW * one.executed and self.names.is_outside(other, stack)
                for other, one in self.sites.items()
            )
        return site.piece

    def _on_execute(self, event: ev.Execute) -> None:
        start, end, program = event.start, event.end, event.program
        ran = end - start
        calls = times_run(program, event.calls)
        self.executed.add(calls, ran)
        if event.trigger != "read":
            self.graph_cut = True
        if program in self.programs or len(self.programs) < PROGRAMS:
            there = tally_of(self.executed_at, event.stack, PLACES, 0, Timed)
            there.add(calls, ran)
            self.add_runs(program, event.t, ran, calls).at_each(there.count - calls + 1, calls)
        self.cuts.add(event)
        self._add_execution(event)
        self._schedule_execution((event.t, start, end, event.device, event.stack if event.trigger == "read" else 0))
        self.window.add_execution(event.device, start, end)  # last: it may settle everything
        if self.now[0] != "running":
            self.now = ("running", event.t)
        self.cover(event.t, end)

    def executions(self, stack: int) -> int:
        return self.executed_at[stack].count if stack in self.executed_at else 0

    def add_runs(self, program: int, moment: int, ns: int, times: int) -> Rhythm:
        """A program ran ``times``, for ``ns`` in all, last at ``moment``; the rhythm is to count in which turns."""
        if program not in self.programs:
            self.program_runs[program] = self.program_busy[program] = 0
            self.program_rhythms[program] = Rhythm()
        self.programs[program] = moment
        self.program_runs[program] += times
        self.program_busy[program] += ns
        return self.program_rhythms[program]

    def _on_break(self, event: ev.GraphBreak) -> None:
        add_bounded(self.breaks, (event.stack, event.reason, event.op), 1, RECORDS)
        self.torch_compile.on_break(event, self.step_num + 1)

    def _on_dynamo_compile(self, event: ev.DynamoCompile) -> None:
        self._compiled(event)
        self.torch_compile.on_compile(event, self.step_num + 1)

    def _on_jit_compile(self, event: ev.JitCompile) -> None:
        self._compiled(event)
        self.jit.on_compile(event, self.step_num + 1)

    def _compiled(self, event: ev.DynamoCompile | ev.JitCompile) -> None:
        end = event.t + event.dur
        self._paint((event.t, end, host.COMPILE, event.stack))
        self.compiling, self.now = None, ("running", end)
        self.cover(event.t, end)
        self.frozen.on_compiled(event)

    def _on_dynamo_recompile(self, event: ev.Recompile) -> None:
        self.torch_compile.on_recompile(event, self.step_num + 1)

    def _on_dynamo_limit(self, event: ev.DynamoLimit) -> None:
        self.torch_compile.on_limit(event, self.step_num + 1, self.steps)

    def _on_torch(self, event: Any) -> None:
        if isinstance(event, ev.CudaGraph | ev.Autotune):
            self.torch_compile.ran.on_compiled(event.t, event.dur)
            self._paint((event.t, event.t + event.dur, host.COMPILE, event.stack))
        self.cover(event.t, event.t)
        (self.torch_compile if isinstance(event, TOLD) else self.cuda_graphs).on(event)

    def _on_torch_tpu(self, event: ev.TorchTpuBatch) -> None:
        self.torch_tpu.on(event)  # other threads make its programs, and tell of them late: nothing of the host's time
        self.cover(event.t, event.t + event.dur)

    def _on_frozen(self, event: ev.FrozenCompile) -> None:
        self.frozen.on_frozen(event)
        self.cover(event.t, event.t)

    # -- steps

    def _on_step(self, event: ev.Step) -> None:
        start, dur, name = event.t, event.dur, event.name
        end = start + dur
        if not self.main_known:
            self._name_main(event.tid)
        tally = self.steps.get(name)
        if tally is None:
            name, tally = self._step_tally(name)
            tally.expect(event.meta.get("total"))
        tally.add(event.num, dur)
        self.torch_compile.on_step(name, number := tally.count, start)
        self.claim_for_step(start, name, number)
        if self.barriers_since_step:
            for site, moment in self.barriers_since_step:
                if moment >= start:
                    site.in_steps += 1
            self.barriers_since_step.clear()
        self.window.add_step(name, event.num, start, end, first=number == 1)
        if self.now[0] != "running":
            self.now = ("running", start)
        self._close(tally, event)

    def _on_digest(self, event: ev.StepDigest) -> None:
        start = event.t
        end = start + event.dur
        self._name_main(event.tid)
        name, tally = self._step_tally(event.name)
        tally.add(event.num, event.dur)
        self.torch_compile.on_step(name, tally.count, start)
        reads, fallbacks = self._add_digest(event)
        scopes = 0
        for key, (count, total, most) in event.scopes.items():
            scope = tally_of(self.scopes, pair(key)[0], PLACES, 0, ScopeTally)
            scope.total.add_many(count, total, most)
            scope.add_steps((self.steps_ended,))
            scope.digest_ns += total
            scopes += total
        self.barriers += event.barriers
        self.executed.add(event.executions, event.busy)
        self.graph_cut = self.graph_cut or bool(event.barriers or event.executions)
        parts = {host.FALLBACK: fallbacks, host.TRANSFER: reads, host.TRACING: event.tracing, host.SCOPE: scopes}
        self.window.add_digest(name, event.num, start, event.dur, event.busy, parts, first=tally.count == 1)
        self.window.steps_end = max(self.window.steps_end, end)
        self.window.add_execution(0, start, end, event.busy)
        self._close(tally, event)

    def _close(self, tally: StepTally, event: ev.Step | ev.StepDigest) -> None:
        start, end = event.t, event.t + event.dur
        tally.end((self.graph_cut,))
        self.graph_cut = False
        if start >= self.steps_ended_at:  # or else steps inside it were counted
            self.steps_ended += 1
            self.steps_ended_at = end
        self.step_num = event.num
        self.cover(start, end)

    def _name_main(self, tid: int) -> None:
        if not self.main_known:
            self.main_thread = tid
            self.main_known = True

    def _step_tally(self, name: int) -> tuple[int, StepTally]:
        """The steps of a name, and the name under which they are counted."""
        if name not in self.steps and len(self.steps) >= _NAMES:
            name = INFERRED
        return name, tally_of(self.steps, name, _NAMES, INFERRED, StepTally)
