"""What a recording of a small program says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import xlaprof
import xlaprof.runtime as xr
from xlaprof import events, log
from xlaprof.analysis.diagnosis import cause


class Told:
    """A recording's events with its interned strings put back."""

    def __init__(self, path: Path) -> None:
        self.events = list(log.read(path))
        self.texts = {e.id: e.text for e in self.events if isinstance(e, events.Text)}
        self.stacks = {e.id: e for e in self.events if isinstance(e, events.Stack)}

    def all(self, kind: type) -> list:
        return [e for e in self.events if isinstance(e, kind)]

    def code(self, stack: int) -> str:
        """Source text of the line a stack names."""
        return self.texts.get(self.stacks[stack].frames[0].code, "")

    @property
    def changes(self) -> list[events.Change]:
        """Why graphs were compiled again."""
        causes = map(cause, self.all(events.Compile))
        return [change for change in causes if change is not None]


def record(path: Path, story: Callable[[], object]) -> Told:
    """Run ``story`` under a recording."""
    xr.sync()
    with xlaprof.record(path):
        story()
    return Told(path)
