"""Record into a temporary log and read it back: what the tests of recording are written with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xlaprof
from xlaprof.events import AnyEvent, Event, Scope, Step, Text


class Recorded:
    """The events of a log that has been closed."""

    def __init__(self, path: Path) -> None:
        reader = xlaprof.read(path)
        self.events: list[AnyEvent] = list(reader)
        self.notes = reader.notes
        self.texts = {event.id: event.text for event in self.events if isinstance(event, Text)}

    def of(self, *kinds: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def scopes(self) -> list[tuple[str, int]]:
        """Name and depth of each scope, in the order in which they ended."""
        return [(self.texts[scope.name], scope.depth) for scope in self.of(Scope)]

    @property
    def steps(self) -> list[tuple[str, int]]:
        return [(self.texts[step.name], step.num) for step in self.of(Step)]


@contextmanager
def recording(path: Path, detail: str = "full") -> Iterator[Callable[[], Recorded]]:
    """``with recording(path) as recorded: ...``, then ``recorded()``."""
    with xlaprof.record(path, detail=detail):
        yield lambda: Recorded(path)
