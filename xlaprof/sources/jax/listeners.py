"""What JAX says of its compiling (``jax.monitoring``, public) becomes one event for each program."""

from __future__ import annotations

import contextlib
import os
import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec

from xlaprof import events
from xlaprof.errors import warn
from xlaprof.events.jit import ArgumentChange, JitCompile
from xlaprof.recording import recorder, stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.sources.unrolled import Unrolled

from . import internals
from .callbacks import Callbacks
from .calls import Calls
from .device import Device
from .jaxprs.unrolled import content, unrolled
from .reads import Reads
from .steps import Steps
from .texts import Texts

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder
    from xlaprof.vocabulary import Vocabulary

_PREFIX = "/jax/core/compile/"
TRACE, _LOWER, BACKEND = (
    f"{_PREFIX}{phase}_duration" for phase in ("jaxpr_trace", "jaxpr_to_mlir_module", "backend_compile")
)
PHASES = {TRACE: "trace", _LOWER: "lower", BACKEND: "backend"}
_NAMES = {_LOWER: "lowering", BACKEND: "XLA"}  # of phases after which there is a program
_HIT, _WRITTEN = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"  # JAX's word for an entry


class _Open(msgspec.Struct):
    """A program in the making."""

    func: str
    start: int
    miss: internals.Miss | None
    frames: tuple[RawFrame, ...]
    ours: bool
    done: set[str] = msgspec.field(default_factory=set)
    ns: dict[str, int] = msgspec.field(default_factory=dict)  # by phase
    began: int = 0  # the phase that runs
    phase: str = ""  # which it is
    within: int = 0  # ns of programs made meanwhile
    cached: bool = False
    written: bool = False  # to the persistent cache
    program: Unrolled = Unrolled(0)
    content: int = 0
    jaxpr: Any = None  # what is lowered


class _Local(threading.local):
    def __init__(self) -> None:
        self.open: list[_Open] = []


class Listeners:
    """Attached to JAX for one recording."""

    def __init__(self, rec: Recorder, name: str, words: Vocabulary) -> None:
        import jax
        from jax import monitoring

        self._rec, self._name, self._words = rec, name, words
        self._announced = False
        self._package = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
        self._local = _Local()
        self._calls = Calls(self._package)
        self._broken = False
        self._steps = Steps(rec)
        self._reads = Reads(rec, self._package, self._announce, self._lowers)
        self._callbacks = Callbacks(rec, self._announce)
        self._texts = Texts(rec)
        self._device = Device(
            rec, self._package, self._announce, self._steps, self._texts, self._reads.check, self._callbacks.since
        )
        self._monitoring = monitoring
        monitoring.register_scalar_listener(self._on_begin)
        monitoring.register_event_duration_secs_listener(self._on_end)
        monitoring.register_event_listener(self._on_event)
        self._steps.attach()
        self._callbacks.attach()
        self._device.attach()  # before reads are: its watcher waits, the program does not
        self._reads.attach()

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {}, {}

    def each_period(self) -> None:
        """In the writer's thread, several times a second."""
        self._device.each_period()

    def detach(self) -> None:
        self._reads.detach()
        self._device.detach()
        self._callbacks.detach()
        self._steps.detach()
        forget = self._monitoring  # each raises where the program has cleared all listeners
        with contextlib.suppress(AssertionError, ValueError):
            forget.unregister_scalar_listener(self._on_begin)
        with contextlib.suppress(AssertionError, ValueError):
            forget.unregister_event_duration_listener(self._on_end)
        with contextlib.suppress(AssertionError, ValueError):
            forget.unregister_event_listener(self._on_event)

    # -- called by JAX, in the thread that compiles: nothing may be raised there -------------------------------

    def _on_begin(self, event: str, value: float, **about: Any) -> None:
        if event in PHASES and recorder.active is self._rec and not self._broken:
            try:
                self._begin(event, str(about.get("fun_name", "")))
            except Exception as error:
                self._give_up(error)

    def _on_end(self, event: str, duration_secs: float, **about: Any) -> None:
        if event in PHASES and recorder.active is self._rec and not self._broken:
            try:
                self._end(event)
            except Exception as error:
                self._give_up(error)

    def _on_event(self, event: str, **about: Any) -> None:
        if event in (_HIT, _WRITTEN) and self._local.open:
            top = self._local.open[-1]
            top.cached, top.written = top.cached or event == _HIT, top.written or event == _WRITTEN

    def _lowers(self) -> bool:
        """Whether JAX makes a program of what was traced, in this thread: it copies the constants of the function."""
        open_ = self._local.open
        return bool(open_) and open_[-1].began > 0 and open_[-1].phase != "trace"

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        warn(f"compiling by JAX is not observed any more: {type(error).__name__}: {error}")

    # -- one program -------------------------------------------------------------------------------------------

    def _begin(self, event: str, func: str) -> None:
        here = internals.here(stacks.OWN, self._package)
        func = plain(func)
        open_ = self._local.open
        while open_ and open_[-1].miss is not None and open_[-1].miss.frame not in here.frames:
            open_.pop()  # that call ended without a program, or raised
        now = perf_counter_ns()
        top = open_[-1] if open_ else None
        goes_on = top is not None and top.func == func and event != TRACE and not top.began
        if not goes_on:
            if top is not None and not top.began:
                open_.pop()  # it was traced, and no program made
            frames = stacks.user_frames()
            top = _Open(func, now, here.miss, frames, here.ours)
            open_.append(top)
        assert top is not None
        top.began, top.phase = now, PHASES[event]
        if event in _NAMES and len(open_) == 1 and not top.ours and self._device.is_own(top.miss and top.miss.fun):
            self._announce(top.start)
            rec = self._rec
            place, name, spent = rec.stack(top.frames), rec.text(top.func), now - top.start
            rec.emit(events.Compiling(now, 0, place, "jit", rec.thread(), None, _NAMES[event], spent, name))
        if event == _LOWER and not top.ours and (jaxpr := internals.lowered()) is not None:
            top.program, top.content = unrolled(jaxpr), content(jaxpr)
            top.jaxpr = jaxpr

    def _end(self, event: str) -> None:
        open_ = self._local.open
        if not open_ or not open_[-1].began:
            return  # it began before the recording did
        top, now = open_[-1], perf_counter_ns()
        phase = PHASES[event]
        top.ns[phase] = top.ns.get(phase, 0) + now - top.began - top.within * (phase == "trace")
        top.began = 0
        if event != BACKEND:
            return
        open_.pop()
        took = now - top.start
        if open_:
            open_[-1].within += took
        if not top.ours:
            self._emit(top, took - top.within)

    def _announce(self, now: int) -> None:
        """A program of the user's own was seen: the log has this source."""
        if not self._announced:
            self._announced = True
            self._rec.emit(events.Source(now, self._name, self._words))

    def _emit(self, made: _Open, took: int) -> None:
        rec = self._rec
        self._announce(made.start)
        code, changes, versions, arrays, cleared = 0, list[ArgumentChange](), 0, 0, 0
        place = rec.stack(made.frames)
        if made.miss is not None:
            compared = self._calls.compare(made.miss, made.func, made.frames)
            self._calls.remember(compared)
            changes, versions, arrays = compared.changes, compared.versions, compared.signature.arrays
            code = rec.stack((compared.place,)) if compared.place is not None else 0
            cleared = rec.stack(compared.cleared) if any(one.kind == "evicted" for one in changes) else 0
            if code and made.frames:
                self._device.compiled(compared.name, made.frames, made.start, made.jaxpr)
        number = 0
        if rec.keeps_code and (made.miss is None or self._device.is_own(made.miss.fun)):
            number = self._texts.compiled(made.func, made.jaxpr, made.miss, place)
        rec.emit(
            JitCompile(
                t=made.start,
                dur=took,
                func=rec.text(made.func),
                stack=place,
                code=code,
                trace=made.ns.get("trace", 0),
                lower=made.ns.get("lower", 0),
                backend=made.ns.get("backend", 0),
                cached=made.cached,
                versions=versions,
                changes=changes,
                known=made.miss is not None,
                ops=made.program.ops,
                turns=made.program.turns,
                loop=rec.stack(made.program.frames),
                loop_ops=made.program.within,
                arrays=arrays,
                unkept="" if made.cached or made.written else internals.cache_state(made.ns.get("backend", 0) / 1e9),
                tid=rec.thread(),
                number=number,
                cleared=cleared,
                content=made.content,
            )
        )


def plain(func: str) -> str:
    """The name of a function, which JAX calls ``jit(f)`` in some phases."""
    return func[4:-1] if func.startswith("jit(") and func.endswith(")") else func
