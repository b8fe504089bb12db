"""What ``torch.compile`` is about to compile, for ``xlaprof.frozen``: told before it does, with the guard that failed.

Dynamo writes a record to its trace when it has found no version that fits and before it begins; what is raised there
leaves the call of the compiled function as it is. Its callback on the begin of compilations is the second net: it is
called for backward passes, which have no such record, and where the program has set up logging anew.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from xlaprof.recording import stacks
from xlaprof.recording.frozen import Compilation, Judge, RecompileError
from xlaprof.sources.trace_log import LOGGER

from . import process
from .breaks import user_name
from .guards import Guard
from .handed_over import in_the_functions_terms
from .handler import compile_callbacks
from .record import Recompiles, parse


def watch(judge: Judge) -> Callable[[], None]:
    """Watch until the function returned is called."""
    watching = _Watching(judge)
    watching.attach()
    return watching.detach


class _Watching(logging.Handler):
    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self._judge = judge
        self._local = threading.local()  # why: of the version that is missed; begun: told of it by its record
        self._was_disabled = False

    def createLock(self) -> None:
        """None is needed: what is remembered is of one thread."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """As any handler, without filters and the lock."""
        self.emit(record)
        return True

    def attach(self) -> None:
        logger = logging.getLogger(LOGGER)
        if self not in logger.handlers:
            logger.addHandler(self)
        if logger.disabled:
            self._was_disabled, logger.disabled = True, False
        known = compile_callbacks()
        if known is not None and self._on_start not in known.start_callbacks:
            known.register_start_callback(self._on_start)

    def detach(self) -> None:
        logger = logging.getLogger(LOGGER)
        logger.removeHandler(self)
        if self._was_disabled:
            logger.disabled, self._was_disabled = True, False
        known = compile_callbacks()
        if known is not None:
            with contextlib.suppress(ValueError):  # reset() was here before
                known.start_callbacks.remove(self._on_start)

    # -- what Dynamo calls: RecompileError alone leaves it

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None)
        if not isinstance(metadata, dict):
            return
        if "artifact" in metadata:
            found = parse(metadata, getattr(record, "payload", None))
            if isinstance(found, Recompiles):
                self._local.why = _why(found)
        elif "dynamo_start" in metadata:
            self.attach()  # reset() forgets the callback
            why, argument = self._local.__dict__.pop("why", ("", ""))
            known = process.compiling()
            name = user_name(known[0].co_name)[0] if known is not None else ""
            self._tell(Compilation("torch.compile", name, process.caller(), why, argument))
            self._local.begun = True

    def _on_start(self, args: Any) -> None:
        self.attach()
        trigger = getattr(getattr(args, "callback_trigger", None), "name", "")
        if trigger == "DYNAMO" and not self._local.__dict__.pop("begun", False):  # somebody took the handler away
            known = process.compiling()
            self._tell(
                Compilation("torch.compile", user_name(known[0].co_name)[0] if known else "", process.caller(), "")
            )
        elif trigger == "LAZY_BACKWARD":
            why = "the backward pass of a graph is compiled when it first runs"
            self._tell(Compilation("torch.compile", "a backward pass", stacks.user_frames(), why))

    def _tell(self, compilation: Compilation) -> None:
        try:
            self._judge(compilation)
        except RecompileError as error:
            raise _through(error) from None


def _why(found: Recompiles) -> tuple[str, str]:
    """In what the call differs from the nearest version, as a text, and the name of what differs."""
    now = process.missed()
    if now is not None:
        _, guards = process.differences(now, found.reasons)
        guards = [in_the_functions_terms(guard, now) for guard in guards]
    else:
        guards = [reason.guard for reason in found.reasons[:1]]
    return "; ".join(map(_text, guards[:3])), guards[0].subject if guards else ""


def _text(guard: Guard) -> str:
    if guard.subject and guard.new:
        what = "" if guard.kind in ("value", "object", "guard") else f"{guard.kind} of "
        return f"{what}{guard.subject} went from {guard.old or 'another'} to {guard.new}"
    return guard.text


def _through(error: RecompileError) -> RecompileError:
    """``error``, of a class that Dynamo raises as it is, also where the program has it suppress errors."""
    let_through: Any = getattr(sys.modules.get("torch._dynamo.exc"), "UncapturedHigherOrderOpError", None)
    if let_through is None:
        return error
    kind = type(RecompileError.__name__, (RecompileError, let_through), {"__init__": RecompileError.__init__})
    made: RecompileError = kind(str(error), error.compilation)
    return made
