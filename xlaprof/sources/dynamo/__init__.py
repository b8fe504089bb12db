"""``torch.compile``, any backend, while it works: graph breaks, recompilations, its limits and what all that costs.

Dynamo keeps a structured trace of what it does, on the logger ``torch.__trace``. While a recording is on a handler of
ours is attached there; its records become events. Nothing of the user's program is changed, torch is not imported for
it, and a step that compiles nothing writes no record and so costs nothing.

==============  ==================================================================================
:mod:`.record`  one record understood: a pure function, the same for a record and a line of a file
:mod:`.breaks`  the text of a graph break
:mod:`.guards`  the text of a guard that failed
:mod:`.hints`   both in plain words
:mod:`.live`    what only the process itself knows: new values, all that differs, who calls
:mod:`.tell`    records to events
:mod:`.attach`  the handler
==============  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xlaprof.recording import recorder
from xlaprof.recording.writer import warn
from xlaprof.when_imported import when_imported

if TYPE_CHECKING:
    from .attach import Handler


class _Watch:
    """Told by the recorder when recordings start and stop."""

    def __init__(self) -> None:
        self._handler: Handler | None = None
        self._call_off: Callable[[], None] = lambda: None

    def recording_started(self, rec: recorder.Recorder) -> None:
        self._call_off()
        self._handler = None
        self._call_off = when_imported("torch._dynamo", lambda: self._attach(rec))

    def _attach(self, rec: recorder.Recorder) -> None:
        if recorder.active is not rec:  # it ended before Dynamo was imported, or this is a fork's child
            return
        try:
            from .attach import Handler  # not before there is something to attach to

            self._handler = Handler(rec)
            self._handler.attach()
        except Exception as error:  # this runs inside the program's import of torch._dynamo
            warn(f"torch.compile is not observed: {type(error).__name__}: {error}")

    def recording_stopping(self, rec: recorder.Recorder) -> None:
        self._call_off()
        if self._handler is not None:
            self._handler.detach()
            self._handler.confess()

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """Also the moment to see whether somebody has cleared the logger's handlers."""
        if self._handler is None or not self._handler.serves(recorder.active):
            return {}, {}
        self._handler.attach()
        return self._handler.counters()


_watch = _Watch()


def install() -> None:
    """Have every recording of this process observe ``torch.compile``, once torch is there."""
    recorder.add_observer(_watch)
