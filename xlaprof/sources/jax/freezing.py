"""What JAX is about to compile, for ``xlaprof.frozen``: told before it traces, with the argument that changed.

JAX tells listeners when a phase begins, in the thread and within the call that needs the program: what is raised there
leaves that call, before anything was traced.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

from xlaprof.errors import warn
from xlaprof.events.jit import ArgumentChange
from xlaprof.recording import stacks
from xlaprof.recording.frozen import Compilation, Judge, RecompileError

from . import internals
from .calls import Calls, Compared
from .listeners import BACKEND, PHASES, TRACE, plain

_SHOWN = 4  # arguments of a call that was never seen


def watch(judge: Judge) -> Callable[[], None]:
    """Watch until the function returned is called."""
    from jax import monitoring

    watching = _Watching(judge)
    monitoring.register_scalar_listener(watching.on_begin)
    monitoring.register_event_duration_secs_listener(watching.on_end)

    def end() -> None:  # each raises where the program has cleared all listeners
        with contextlib.suppress(AssertionError, ValueError):
            monitoring.unregister_scalar_listener(watching.on_begin)
        with contextlib.suppress(AssertionError, ValueError):
            monitoring.unregister_event_duration_listener(watching.on_end)

    return end


class _Local(threading.local):
    def __init__(self) -> None:
        self.told: dict[int, str] = {}  # calls of this thread that were told of, while they last: frame -> function
        self.ahead = ""  # the function that is compiled ahead


class _Watching:
    def __init__(self, judge: Judge) -> None:
        import jax

        self._judge = judge
        self._package = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
        self._calls = Calls(self._package)
        self._local = _Local()
        self._broken = False

    def on_begin(self, event: str, value: float, **about: Any) -> None:
        """Called by JAX when a phase begins. :class:`RecompileError` alone leaves it."""
        if event not in PHASES or self._broken:
            return
        try:
            compared, compilation = self._about(event, plain(str(about.get("fun_name", ""))))
        except Exception as error:
            self._broken = True
            warn(f"compiling by JAX is not watched any more: {type(error).__name__}: {error}")
            return
        if compilation is not None:
            try:
                self._judge(compilation)
            except RecompileError:
                self._local.told.clear()
                self._local.ahead = ""
                raise
        if compared is not None:
            self._calls.remember(compared)

    def on_end(self, event: str, duration_secs: float, **about: Any) -> None:
        """Called by JAX when a phase has ended: with the last one the call's frame may be another call's."""
        if event == BACKEND:
            func, told = plain(str(about.get("fun_name", ""))), self._local.told
            for frame in [frame for frame, name in told.items() if name == func]:
                del told[frame]

    def _about(self, event: str, func: str) -> tuple[Compared | None, Compilation | None]:
        here = internals.here(stacks.OWN, self._package)
        told = self._local.told
        for frame in told.keys() - here.frames:
            del told[frame]  # that call ended without a program, or raised
        if here.miss is not None and event == TRACE and told.get(here.miss.frame) == func:
            del told[here.miss.frame]  # a call traces its function once: this is another one
        if here.ours or told:  # a graph of the runtime's, a further phase, or a value that a trace computes
            return None, None
        if here.miss is None:
            ahead, self._local.ahead = self._local.ahead, ""
            if event == TRACE or (event == BACKEND and ahead == func):
                return None, None  # tracing alone makes no program; or the phase before was told of
            self._local.ahead = func
            return None, Compilation("jax", func, stacks.user_frames(), "it is compiled ahead, or op by op")
        told[here.miss.frame] = func
        compared = self._calls.compare(here.miss, func, stacks.user_frames())
        first = compared.changes[0] if compared.changes else None
        why = "; ".join(map(_text, compared.changes[:3])) if first is not None else _asked_for(compared)
        argument = f"{first.kind} {first.name}" if first is not None else ""
        return compared, Compilation("jax", func, stacks.user_frames(), why, argument)


_ALONE = {
    "function": "it is a new function object of the same code",
    "options": "jit was called again with other options",
    "evicted": "its program had been dropped",
    "parameter": "a parameter of the operation is another one",
    "unknown": "nothing is known that differs",
}


_SUBJECTS = {"config": "the configuration", "static": "the static argument", "field": "the static part"}


def _text(change: ArgumentChange) -> str:
    if change.kind in _ALONE:
        return _ALONE[change.kind]
    if change.kind == "anew":
        return f"{change.name} is another object, made anew ({change.new})"
    subject = _SUBJECTS.get(change.kind, f"the {change.kind} of")
    return f"{subject} {change.name} went from {change.old or 'nothing'} to {change.new or 'nothing'}"


def _asked_for(compared: Compared) -> str:
    leaves = compared.signature.leaves
    shown = ", ".join(f"{name} {leaf}" for name, leaf in islice(leaves.items(), _SHOWN))
    more = f" and {len(leaves) - _SHOWN} more" if len(leaves) > _SHOWN else ""
    return f"no call of it was compiled since frozen() began; this one has {shown or 'no arguments'}{more}"
