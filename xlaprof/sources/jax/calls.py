"""The calls that needed a program: each function's, to say in what the next one differs."""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType
from typing import Any, NamedTuple

from xlaprof.events.jit import ArgumentChange
from xlaprof.recording import stacks
from xlaprof.recording.stacks import RawFrame, is_library

from . import internals, signature, static

_FUNCTIONS = 10_000  # whose calls are remembered
_TRACING = frozenset({"scan", "while", "cond"})  # operations that trace a function of the program's
_CALLS = 64  # of one function: the first is forgotten first

Key = tuple[str, int, str]  # file, line and name of a function's definition


class Compared(NamedTuple):
    """A call, beside the earlier ones of its function."""

    key: Key
    signature: signature.Signature
    place: RawFrame | None  # where the function is defined; None: it is an operation of JAX's or a library's own
    changes: list[ArgumentChange]  # in what it differs from the call that it is most like; empty: there was none
    versions: int  # earlier calls
    cleared: tuple[RawFrame, ...]  # the line that cleared JAX's caches last
    name: str  # of the function


class Calls:
    """Of one observer: what it has seen."""

    def __init__(self, package: str) -> None:
        """``package``: the folder of jax."""
        self._package, self._clears = package, internals.Clears(stacks.user_frames)
        self._lock = threading.Lock()
        self._leaves: dict[signature.Leaf, signature.Leaf] = {}
        self._seen: dict[Key, list[signature.Signature]] = {}

    def compare(self, miss: internals.Miss, func: str, frames: tuple[RawFrame, ...]) -> Compared:
        """``func``: the name that JAX has for it. ``frames``: of the line that called.

        A function of a library's that the program jits (``jax.jit(model.init)``) is one at each line: elsewhere it is
        another model's. So is an operation, for which JAX makes a program of its own.
        """
        miss = internals.opened(miss)
        function = _unwrapped(miss.fun)
        code = getattr(function, "__code__", None)
        line = f"{frames[0].file}:{frames[0].line}" if frames else ""
        key: Key = ("", 0, f"{func} {line}")
        own = isinstance(code, CodeType) and not code.co_filename.startswith(self._package)
        if own and isinstance(code, CodeType):
            key = (code.co_filename, code.co_firstlineno, code.co_qualname)
            if is_library(code.co_filename, getattr(function, "__module__", None)):
                own = not _jitted_by_library(function)
                key = (*key[:2], f"{code.co_qualname} {line}")
        held = static.held(function) if own else static.handed() if func in _TRACING else ()
        now = signature.signature(miss, internals.context(), own, self._clears.times, self._leaves, held)
        with self._lock:
            earlier = list(self._seen.get(key, ()))
        before = signature.nearest(now, earlier)
        changes = [] if before is None else signature.differences(now, before, internals.context_names())
        place = None
        if own and isinstance(code, CodeType):
            place = RawFrame(os.path.abspath(code.co_filename), code.co_firstlineno, code.co_qualname)
        name = str(getattr(miss.fun, "__name__", func))
        return Compared(key, now, place, changes, len(earlier), self._clears.frames, name)

    def remember(self, compared: Compared) -> None:
        """A program was made for this call."""
        with self._lock:
            if compared.key not in self._seen and len(self._seen) >= _FUNCTIONS:
                self._seen.clear()
            earlier = self._seen.setdefault(compared.key, [])
            earlier.append(compared.signature)
            del earlier[:-_CALLS]


def _jitted_by_library(function: Any) -> bool:
    """Whether the library calls ``jax.jit`` on it, for itself: its module has the jitted function under that name."""
    found = sys.modules.get(getattr(function, "__module__", None) or "")
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return hasattr(found, "lower") and _unwrapped(found) is function


def _unwrapped(fun: Any) -> Any:
    """The user's function under what decorates it, or is a method or a partial of it."""
    for _ in range(8):
        inner = getattr(fun, "__wrapped__", None) or getattr(fun, "func", None) or getattr(fun, "__func__", None)
        if inner is None:
            return fun
        fun = inner
    return fun
