"""The steps of a program of JAX: ``jax.profiler.StepTraceAnnotation``, or else where a jitted function repeats.

Without an annotation a step lasts from one call of a function at a line to the next: of the function that comes first
of those called most often. Its line may be reached from several, as that of a function which trains one stage. What
the program names itself always counts instead.
"""

from __future__ import annotations

import functools
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from xlaprof import events
from xlaprof.recording import recorder

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

    from .sites import Site

_SURE = 3  # calls from which on a line is taken for a loop
_MORE = 2  # times as often: then the steps are another function's


def _is_same(one: Site, other: Site) -> bool:
    return one.name == other.name and one.frames[:1] == other.frames[:1]


class Steps:
    """Of one recording."""

    def __init__(self, rec: Recorder) -> None:
        self._rec = rec
        self._main: Site | None = None
        self._since = self._num = 0
        self._made = 0  # steps that this has told
        self._named = False
        self._undo: list[tuple[type, str, Any]] = []

    # -- where a function repeats

    def visited(self, site: Site, now: int, tid: int) -> None:
        """A function of the program's is called at a line of it."""
        rec = self._rec
        scopes = rec.here.open
        if (
            self._named
            or rec.turns != self._made
            or (scopes and any(type(one[0]).__name__ == "StepTrace" for one in scopes))
        ):
            self._named = True
            return
        site.visits += 1
        main = self._main
        if site is main or (main is not None and _is_same(site, main)):
            rec.step(events.Step(rec.text(site.name), self._num, self._since, now - self._since, tid))
            self._made = rec.turns
            self._num += 1
        elif site.visits < _SURE or (main is not None and site.visits <= _MORE * main.visits):
            return
        else:
            self._main, self._num = site, site.visits - 1
        self._since = now
        rec.step_opened(now, tid)

    # -- where the program says so

    def attach(self) -> None:
        """Have ``StepTraceAnnotation`` tell of its steps."""
        from jax.profiler import StepTraceAnnotation

        mine = self

        def wrap(name: str, make: Any) -> None:
            theirs = getattr(StepTraceAnnotation, name)
            own = vars(StepTraceAnnotation).get(name)
            self._undo.append((StepTraceAnnotation, name, own))
            setattr(StepTraceAnnotation, name, functools.wraps(theirs)(make(theirs)))

        def init(theirs: Any) -> Any:
            def __init__(self: Any, name: str, **kwargs: Any) -> None:
                theirs(self, name, **kwargs)
                self._xlaprof = (str(name), kwargs.get("step_num"), 0)

            return __init__

        def enter(theirs: Any) -> Any:
            def __enter__(self: Any) -> Any:
                mine._opened(self)
                return theirs(self)

            return __enter__

        def leave(theirs: Any) -> Any:
            def __exit__(self: Any, *exc: Any) -> Any:
                result = theirs(self, *exc)
                mine._closed(self, exc)
                return result

            return __exit__

        wrap("__init__", init)
        wrap("__enter__", enter)
        wrap("__exit__", leave)

    def detach(self) -> None:
        for owner, name, own in reversed(self._undo):
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
        self._undo.clear()

    def _opened(self, annotation: Any) -> None:
        rec, known = self._rec, getattr(annotation, "_xlaprof", None)
        if known is not None and recorder.active is rec:
            self._named = True
            now = perf_counter_ns()
            annotation._xlaprof = (known[0], known[1], now)
            rec.step_opened(now, rec.thread())

    def _closed(self, annotation: Any, exc: tuple[Any, ...]) -> None:
        rec, known = self._rec, getattr(annotation, "_xlaprof", None)
        if known is None or not known[2] or recorder.active is not rec:
            return
        name, num, since = known
        self._num += 1
        number = int(num) if isinstance(num, int) else self._num - 1
        error = exc[0].__name__ if exc and exc[0] is not None else ""
        rec.step(events.Step(rec.text(name), number, since, perf_counter_ns() - since, rec.thread(), {}, error))
