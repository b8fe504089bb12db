"""Record a small program, and read why its graphs were compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import xlaprof
import xlaprof.runtime as xr
from tests.recording import Recorded
from xlaprof.analysis.diagnosis import cause
from xlaprof.events import Change, Compile, Stack


class RecordedProgram(Recorded):
    """A recording's events with its interned strings put back."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.stacks = {event.id: event for event in self.of(Stack)}

    def code(self, stack: int) -> str:
        """Source text of the line a stack names."""
        return self.texts.get(self.stacks[stack].frames[0].code, "")

    @property
    def changes(self) -> list[Change]:
        """Why graphs were compiled again."""
        return [change for change in map(cause, self.of(Compile)) if change is not None]


def record(path: Path, program: Callable[[], object]) -> RecordedProgram:
    """Run ``program`` under a recording."""
    xr.sync()
    with xlaprof.record(path):
        program()
    return RecordedProgram(path)
