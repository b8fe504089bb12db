"""``frozen``: no compilation after warm-up, in production; else it says what would have been compiled, and why.

What compiles registers here how it is watched (:func:`add_watch`, :data:`SOURCES`): nothing of a framework is known in
this module, and no configuration of theirs is changed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar, get_args

from xlaprof.errors import UserError, warn
from xlaprof.events import FrozenCompile

from . import recorder, trace
from .stacks import RawFrame

F = TypeVar("F", bound=Callable[..., Any])
OnRecompile = Literal["warn", "raise", "record"]

#: the plug-in point of the live sources, a stage above: its ``watch`` watches what compiles in them
SOURCES = "xlaprof.sources.freezing"
_KEPT = 1_000  # compilations that one object remembers, and causes that it warns of once


class Compilation(NamedTuple):
    """Something that is about to be compiled."""

    by: str  # "torch.compile", "jax", "xla"
    function: str  # its name; of the embedded runtime what ends the graph: "sync", "read"
    frames: tuple[RawFrame, ...]  # the user's lines, innermost first
    why: str  # in what it differs from what was compiled before; "": not known
    argument: str = ""  # what differs, for "once for each cause"

    def __str__(self) -> str:
        place = f" at {self.frames[0].file}:{self.frames[0].line}" if self.frames else ""
        return f"{self.by} compiles {self.function or 'a program'}{place}: {self.why or 'nothing like it was compiled'}"


class RecompileError(RuntimeError):
    """A program that :class:`frozen` had frozen would have been compiled again: what, on which line, and why.

    ``compilation`` has these as ``by``, ``function``, ``frames`` and ``why``. Nothing was compiled. On the embedded
    runtime a barrier that raises this leaves what its graph overwrites (parameters) as it was at the barrier before:
    the step is left out.
    """

    _xla_final = True  # the embedded runtime raises it as it is: no other way to compute is tried

    def __init__(self, message: str, compilation: Compilation | None = None) -> None:
        super().__init__(message)
        self.compilation = compilation


Judge = Callable[[Compilation], None]
#: starts to watch: calls the judge, in the thread that is about to compile, before it does; returns what ends that
Watch = Callable[[Judge], Callable[[], None]]

_lock = threading.RLock()
_watches: list[Watch] = []
_active: list[frozen] = []
_ends: list[Callable[[], None]] = []


def add_watch(watch: Watch) -> None:
    """Have ``watch`` watch what compiles whenever something is to be frozen, and at once if something is."""
    with _lock:
        _watches.append(watch)
        if _active:
            _ends.append(watch(_judge))


def _judge(compilation: Compilation) -> None:
    for one in tuple(_active):
        one._judge(compilation)


def _step_ended() -> None:
    for one in tuple(_active):
        one._step_of_a_trace()


class frozen:
    """No compilation after warm-up: a context manager, and a decorator.

    ::

        with xlaprof.frozen(after_steps=3, on_recompile="raise") as guard:
            for batch in loader:
                loss = train_step(batch)
                guard.step()

        predict = xlaprof.frozen(after_steps=8)(predict)  # each call is a step

    After ``after_steps`` steps whatever ``torch.compile``, JAX or the embedded runtime would compile is told, with the
    user's line and the argument that changed: ``"warn"``, one line on stderr for each cause; ``"raise"``,
    :class:`RecompileError` in the thread that would compile, before it does; ``"record"``, nothing but an event in the
    recording that is on, which every mode writes, and which the report makes a finding of. ``compilations`` lists them.
    Steps are :class:`StepTrace`'s, or calls of ``step()``. A with-block is about the whole process; a decorated
    function about its own calls. Of the frameworks' configuration nothing is changed, and a step that compiles nothing
    costs what it costs without. Raises :class:`RecordingError` for other arguments.
    """

    def __init__(self, after_steps: int = 0, on_recompile: OnRecompile = "warn") -> None:
        if on_recompile not in get_args(OnRecompile):
            raise recorder.RecordingError(f"on_recompile must be 'warn', 'raise' or 'record', not {on_recompile!r}")
        if not isinstance(after_steps, int) or isinstance(after_steps, bool) or after_steps < 0:
            raise recorder.RecordingError(f"after_steps must be a number of steps, 0 or more, not {after_steps!r}")
        self.after_steps = after_steps
        self.compilations: list[Compilation] = []
        self.steps = 0
        self._on_recompile: OnRecompile = on_recompile
        self._entered = 0
        self._calls: threading.local | None = None  # of a decorator: calls in progress, by thread
        self._told: set[tuple[object, ...]] = set()

    @property
    def is_frozen(self) -> bool:
        """Whether warm-up is over."""
        return self.steps >= self.after_steps

    def step(self) -> None:
        """A step has ended."""
        self.steps += 1

    def __enter__(self) -> Self:
        with _lock:
            self._entered += 1
            if self._entered == 1:
                _active.append(self)
            if not _ends:
                trace.step_ended.append(_step_ended)
                _ends.append(functools.partial(trace.step_ended.remove, _step_ended))
                _ends.append(importlib.import_module(SOURCES).watch(_judge))
                _ends.extend(watch(_judge) for watch in _watches)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        with _lock:
            self._entered -= 1
            if not self._entered:
                _active.remove(self)
            if not _active:
                while _ends:
                    _ends.pop()()

    def __call__(self, function: F) -> F:
        """``function`` with each call a step; what it compiles after ``after_steps`` calls is told."""
        if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise UserError(f"frozen() wraps plain functions, not {function!r}: use it as a context manager")
        mine = frozen(self.after_steps, self._on_recompile)
        mine._calls = calls = threading.local()

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            calls.depth = getattr(calls, "depth", 0) + 1
            try:
                result = function(*args, **kwargs)
            finally:
                calls.depth -= 1
            mine.steps += not calls.depth
            return result

        mine.__enter__()  # for as long as the process lives: the function may be called at any time
        wrapper.frozen = mine  # type: ignore[attr-defined]
        return wrapper  # type: ignore[return-value]

    def __repr__(self) -> str:
        state = "frozen" if self.is_frozen else f"step {self.steps} of {self.after_steps}"
        return f"<xlaprof.frozen: {state}, {len(self.compilations)} compiled since>"

    # -- what is told

    def _step_of_a_trace(self) -> None:
        if self._calls is None:
            self.steps += 1

    def _judge(self, compilation: Compilation) -> None:
        if not self.is_frozen or (self._calls is not None and not getattr(self._calls, "depth", 0)):
            return
        if len(self.compilations) < _KEPT:
            self.compilations.append(compilation)
        refused = self._on_recompile == "raise"
        rec = recorder.active
        if rec is not None:
            stack = rec.stack(compilation.frames)
            rec.emit(
                FrozenCompile(
                    time.perf_counter_ns(),
                    compilation.by,
                    rec.text(compilation.function),
                    compilation.why,
                    stack,
                    self.steps,
                    refused,
                    rec.thread(),
                )
            )
        message = f"frozen after {self.after_steps} steps, but in step {self.steps} {compilation}"
        if refused:
            raise RecompileError(message, compilation)
        cause = (compilation.by, compilation.function, compilation.frames[:1], compilation.argument)
        if self._on_recompile == "warn" and cause not in self._told and len(self._told) < _KEPT:
            self._told.add(cause)
            warn(message)
