"""A timer around the calls of inductor's graphs, on their class, for as long as a recording is on.

Looks from another thread cannot measure this: a thread that wants the interpreter's lock gets it where the program
lets go of it, which is in the calls of kernels, or waits for it 5 ms; a graph's share of 0.37 was seen as 0.15.

The class's ``__call__`` is replaced when the program has imported inductor, and put back when the recording ends, and
in pauses in which calls come fast: one that is let through costs a frame of Python more. What it needs of PyTorch is
private, and the same in 2.11 to 2.13; where that is otherwise nothing is replaced, and no call is timed.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import CodeType
from typing import Any

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.when_imported import when_imported

from .windows import CALLS, GLANCE, LONGEST_NS, Pauses

MODULE, CLASS = "torch._inductor.output_code", "CompiledFxGraph"
_NONE: Iterator[None] = iter(())
_PATIENCE_S = 0.1
_FRAMES = 64  # looked through for the function that calls a graph
_CALLS_GRAPH = "__compiled_fn"  # how Dynamo names the graph in a function's code

#: makes the event of a graph: its number, compile id, whether it is a backward graph, the code that calls it
Made = Callable[[int, str, bool, CodeType | None], events.TimedGraph]


class Timer:
    """Of one recording. ``failed`` hears of errors in here, which reach nobody else."""

    def __init__(self, rec: recorder.Recorder, made: Made, failed: Callable[[Exception], None]) -> None:
        self._rec = rec
        self._made = made
        self._failed = failed
        self._thread = rec.thread
        self._cancel: Callable[[], None] = lambda: None
        self._class: Any = None
        self._timed: Any = None  # what stands in the class, and
        self._call: Any = None  # stood there before
        self._after: Any = None  # the same of what is called when a graph has been made
        self._after_timed: Any = None
        #: id of a graph -> its number; the references tell when a graph is gone
        self._numbers: dict[int, int] = {}
        self._graphs: dict[int, weakref.ref[Any]] = {}
        self._next = itertools.count(1)
        self._noted: list[tuple[int, int, int, int, int]] = []  # begin, end, graph, thread, steps that had ended
        self._changing = threading.Lock()  # never waited for long: a fork may come at any time
        self._over = False
        self._pauses = Pauses(perf_counter_ns(), random.Random().random)
        self._joined = False
        self._skipped = 0  # since the last window
        self._away = 0  # since when PyTorch's own function stands in the class, for a pause; 0: ours does
        self._pausing = False
        self._glance = 0  # calls that are let through until the next look at the clock
        self._left = 0  # calls of the pause after these
        self._through: Iterator[None] = _NONE  # has an item for each call that is let through

    # -- coming and going

    def attach(self) -> None:
        """Time the calls as soon as the program has imported inductor."""
        self._cancel = when_imported(MODULE, self._install)

    def detach(self) -> None:
        """Put back what stood in the class, unless somebody else has replaced it; tell of the last calls."""
        if self._over:
            return
        self._cancel()
        self._over = True
        self._changing.acquire(timeout=_PATIENCE_S)  # for the writer's thread, that may be changing the class
        self._through = itertools.repeat(None)  # for who kept our function: it times nothing more
        noted, self._noted = self._noted, []
        # a few calls would stand for all that were left out before them
        if recorder.active is self._rec and len(noted) > 1 and (not self._skipped or len(noted) >= CALLS // 4):
            self._emit(noted)
        for name, mine, before in (
            ("__call__", self._timed, self._call),
            ("post_compile", self._after_timed, self._after),
        ):
            if mine is not None and vars(self._class).get(name) is mine:
                setattr(self._class, name, before)
        self._numbers.clear()
        self._graphs.clear()

    def _install(self) -> None:
        try:
            found: Any = getattr(sys.modules[MODULE], CLASS, None)
            call, after = vars(found).get("__call__"), vars(found).get("post_compile")
            if _takes(call, 2) and _takes(after, 4):  # self, inputs; self, example_inputs, constants, graph_kwargs
                self._class, self._call, self._after = found, call, after
                self._timed, self._after_timed = self._around_call(call), self._around_making(after)
                found.__call__, found.post_compile = self._timed, self._after_timed
        except Exception as error:
            self._failed(error)

    # -- what stands in the class

    def _around_call(self, call: Any) -> Any:
        timer = self

        @functools.wraps(call)
        def timed(self: Any, inputs: Any) -> Any:
            for _ in timer._through:
                return call(self, inputs)
            return timer._note(self, inputs, call)

        own = (one for one in vars(Timer).values() if hasattr(one, "__code__"))
        for function in (timed, *own):
            _leave_to_python(function.__code__)
        return timed

    def _around_making(self, after: Any) -> Any:
        timer = self

        @functools.wraps(after)
        def made(self: Any, example_inputs: Any, constants: Any, graph_kwargs: Any) -> Any:
            result = after(self, example_inputs, constants, graph_kwargs)
            if recorder.active is timer._rec:
                timer._number(self, graph_kwargs)
            return result

        return made

    def _note(self, graph: Any, inputs: Any, call: Any) -> Any:
        """A call that is timed, or the first that is not let through."""
        if recorder.active is not self._rec:  # in a forked child, or another recording has begun
            self.detach()
            return call(graph, inputs)
        if self._pausing and self._goes_on():
            return call(graph, inputs)
        noted = self._noted  # if the window is over when the call ends, it belongs to none
        number = self._numbers.get(id(graph))
        if number is None:
            number = self._number(graph, getattr(graph, "fx_kwargs", {}), sys._getframe(1))
        turns, thread = self._rec.turns, self._thread()
        begin = perf_counter_ns()
        try:
            return call(graph, inputs)
        finally:
            end = perf_counter_ns()
            noted.append((begin, end, number, thread, turns))
            if noted is self._noted and (len(noted) >= CALLS or end - noted[0][0] >= LONGEST_NS):
                self._close(end)

    # -- windows

    def _goes_on(self) -> bool:
        """Whether the pause goes on: as many calls as were let through are over."""
        self._skipped += self._glance
        if not self._left or perf_counter_ns() >= self._pauses.until:
            self._pausing = False
            return False
        self._skipped += 1
        self._let_through(self._left - 1)
        return True

    def _let_through(self, calls: int) -> None:
        """Leave out the next calls, ``calls`` in all; the clock is looked at now and then."""
        self._pausing = True
        self._glance = min(GLANCE, calls)
        self._left = calls - self._glance
        self._through = itertools.repeat(None, self._glance)

    def _close(self, now: int) -> None:
        """The window is full: tell of it, and begin a pause. Another thread may be at it."""
        if not self._changing.acquire(blocking=False):
            return
        try:
            noted = self._noted
            if len(noted) < 2 or self._over:
                return
            self._noted = []
            self._emit(noted)
            pause = self._pauses.after(noted[0][0], now, len(noted))
            self._joined = not pause
            if pause and self._pauses.by_clock and self._replace(self._timed, self._call):
                self._through = itertools.repeat(None)
                self._away = now
            elif pause:
                self._let_through(pause)
            else:
                self._noted.insert(0, noted[-1])
        except Exception as error:
            self._failed(error)
        finally:
            self._changing.release()

    def each_period(self) -> None:
        """In the writer's thread: end a pause by the clock."""
        now = perf_counter_ns()
        if not self._away or now < self._pauses.back or not self._changing.acquire(blocking=False):
            return
        try:
            away, self._away = self._away, 0
            if away and not self._over:
                self._skipped += int((now - away) * self._pauses.rate)  # at the pace of before
                self._let_through(self._pauses.further(now))
                if not self._replace(self._call, self._timed):  # the program has replaced it meanwhile
                    self._call = vars(self._class)["__call__"]
                    self._timed = self._class.__call__ = self._around_call(self._call)
        finally:
            self._changing.release()

    def _replace(self, before: Any, after: Any) -> bool:
        """Put ``after`` into the class, if ``before`` stands there."""
        found = vars(self._class).get("__call__") is before
        if found:
            self._class.__call__ = after
        return found

    def _emit(self, noted: list[tuple[int, int, int, int, int]]) -> None:
        noted.sort()
        begins, ends, graphs, threads, turns = zip(*noted, strict=True)
        one = threads.count(threads[0]) == len(threads)
        steps = [0, *map(operator.sub, turns[1:], turns)]
        self._rec.emit(
            events.GraphCalls(
                begins[0],
                list(graphs),
                [0, *map(operator.sub, begins[1:], begins)],
                list(map(operator.sub, ends, begins)),
                tids=[] if one else list(threads),
                steps=[max(0, count) for count in steps] if any(steps) else [],
                skipped=self._skipped,
                joined=self._joined,
                tid=threads[0],
            )
        )
        self._skipped = 0

    # -- graphs

    def _number(self, graph: Any, options: Any, frame: Any = None) -> int:
        """Number a graph that has been made, or, with the frame that calls it, one from before the recording."""
        try:
            key = id(graph)
            number = next(self._next)
            compile, code = ("", _caller(frame)) if frame is not None else (_compile_id(), None)
            backward = bool(options.get("is_backward"))
            self._graphs[key] = weakref.ref(graph, functools.partial(self._gone, key))
            self._numbers[key] = number
            self._rec.emit(self._made(number, compile, backward, None if backward else code))
            return number
        except Exception as error:
            self._failed(error)
            return 0

    def _gone(self, key: int, reference: weakref.ref[Any]) -> None:
        if self._graphs.get(key) is reference:
            self._numbers.pop(key, None)
            self._graphs.pop(key, None)


def _takes(function: Any, arguments: int) -> bool:
    """Whether a function takes so many arguments, whatever their names: the program may have put its own there."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    any_number = bool(code.co_flags & inspect.CO_VARARGS)
    return not code.co_kwonlyargcount and (
        code.co_argcount == arguments or (any_number and code.co_argcount < arguments)
    )


def _leave_to_python(code: CodeType) -> None:
    """Have Dynamo not compile a frame of ours where it meets one: it leaves alone what it finds in inductor's files."""
    sys.modules["torch._dynamo.eval_frame"].skip_code(code)


def _compile_id() -> str:
    context = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    compile = context.current_compile_id() if context is not None else None
    return str(compile) if compile is not None else ""


def _caller(frame: Any) -> CodeType | None:
    """The code that Dynamo made of the user's function, which calls the graph; None of a backward graph."""
    for _ in range(_FRAMES):
        if frame is None:
            return None
        code: CodeType = frame.f_code
        if any(name.startswith(_CALLS_GRAPH) for name in code.co_names):
            return code
        frame = frame.f_back
    return None
