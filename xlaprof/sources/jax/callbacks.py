"""Python that a program of JAX calls while it runs: ``jax.debug.callback``, ``pure_callback`` and the like.

Each goes through one function of JAX's when a program is lowered. What it is given is timed from then on, as long as
the recording lasts: how often it ran, and how long. What JAX brings to and from the device for it is a part of that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from time import perf_counter_ns
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.recording.stacks import RawFrame, is_library

from . import internals
from .jaxprs.unrolled import lines

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

_EVERY_NS = 10_000_000_000  # between two events of one line
_WRAPPED = 50  # objects around a function that are looked at
_EMPTY = CellType()
_HERE = threading.local()


def within() -> bool:
    """Whether this thread runs one of them."""
    return getattr(_HERE, "runs", False)


class Callbacks:
    """Attached to JAX for one recording."""

    def __init__(self, rec: Recorder, announce: Callable[[int], None]) -> None:
        self._rec, self._announce = rec, announce
        self._lines: list[_Line] = []
        self._begun: list[int] = []  # when the first began since it was asked for; empty: none
        self._undo: Callable[[], None] = lambda: None

    def attach(self) -> None:
        owner = internals.calling_back()
        if owner is not None:
            theirs = owner.emit_python_callback
            self._undo = functools.partial(setattr, owner, "emit_python_callback", theirs)
            owner.emit_python_callback = self._lowering(theirs)

    def detach(self) -> None:
        self._undo()
        for line in self._lines:
            line.tell()

    def since(self) -> int:
        """When Python was called first since the last time that this was asked, ns; 0: not at all."""
        return self._begun.pop() if self._begun else 0

    def _lowering(self, theirs: Any) -> Any:
        @functools.wraps(theirs)
        def emit_python_callback(ctx: Any, callback: Any, *rest: Any, **named: Any) -> Any:
            if recorder.active is self._rec and callable(callback):
                frames = lines(getattr(ctx, "traceback", None)) or _function(callback)
                if frames:
                    self._announce(perf_counter_ns())
                    name = str(getattr(ctx, "primitive", None) or "callback")
                    line = _Line(self._rec, self._rec.text(_NAMES.get(name, name)), self._rec.stack(frames))
                    self._lines.append(line)
                    callback = line.timed(callback, self._begun)
            return theirs(ctx, callback, *rest, **named)

        return emit_python_callback


#: as a program writes them, by the names of JAX's primitives
_NAMES = {
    "debug_callback": "jax.debug.callback",
    "debug_print": "jax.debug.print",
    "pure_callback": "jax.pure_callback",
    "io_callback": "jax.experimental.io_callback",
}


def _function(callback: Callable[..., Any]) -> tuple[RawFrame, ...]:
    """The program's function that JAX calls by way of ``callback``, at its ``def``; empty: it is none of Python's.

    Under ``jax.vmap`` in a scan, JAX traces the call once more by itself, and no line of the program is on the way to
    it. What JAX wraps around the function holds it.
    """
    waiting: list[Any] = [callback]
    seen = set[int]()
    while waiting and len(seen) < _WRAPPED:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            code = one.__code__
            if not is_library(code.co_filename, None):
                return (RawFrame(code.co_filename, code.co_firstlineno, code.co_qualname),)
            held = [cell.cell_contents for cell in one.__closure__ or () if cell != _EMPTY]
            waiting += [other for other in held if callable(other)]
        elif isinstance(one, MethodType | functools.partial):
            waiting.append(one.__func__ if isinstance(one, MethodType) else one.func)
        elif type(one).__module__.startswith("jax"):
            names = (*getattr(one, "__dict__", ()), *getattr(type(one), "__slots__", ()))
            waiting += [other for other in (getattr(one, name, None) for name in names) if callable(other)]
        elif not isinstance(one, type | BuiltinFunctionType):
            waiting.append(type(one).__call__)
    return ()


class _Line:
    """One of them in one program."""

    def __init__(self, rec: Recorder, name: int, stack: int) -> None:
        self._rec, self._name, self._stack = rec, name, stack
        self._lock = threading.Lock()
        self._calls, self._ns, self._told = 0, 0, perf_counter_ns()

    def timed(self, callback: Callable[..., Any], first: list[int]) -> Callable[..., Any]:
        """``first``: takes the moment, where it is empty."""
        rec = self._rec

        @functools.wraps(callback)
        def called(*args: Any) -> Any:
            if recorder.active is not rec:
                return callback(*args)
            begun, _HERE.runs = perf_counter_ns(), True
            if not first:
                first.append(begun)
            try:
                return callback(*args)
            finally:
                _HERE.runs, now = False, perf_counter_ns()
                with self._lock:
                    self._calls += 1
                    self._ns += now - begun
                if now - self._told > _EVERY_NS:
                    self.tell()

        return called

    def tell(self) -> None:
        """How often it ran since the last time."""
        with self._lock:
            calls, ns, self._calls, self._ns, self._told = self._calls, self._ns, 0, 0, perf_counter_ns()
        if calls:
            self._rec.emit(events.HostCallbacks(self._told, self._name, calls, ns, self._stack))
