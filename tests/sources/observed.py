"""Record what ``torch.compile`` does in a block: the events, their texts and places, and the report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import xlaprof
from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.run import Run
from xlaprof.events import AnyEvent, DynamoCompile, DynamoLimit, Event, GraphBreak, Recompile


class Observed:
    """A recording that has been closed."""

    def __init__(self, path: Path) -> None:
        self.events: list[AnyEvent] = list(xlaprof.read(path))
        self.run = Run().feed_all(self.events)
        self.report: Report = self.run.report()

    def of(self, *kinds: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    def findings(self, kind: str = "") -> list[Finding]:
        return [finding for finding in self.report.findings if kind in ("", finding.kind)]

    @property
    def counts(self) -> Counts:
        forward = [event for event in self.of(DynamoCompile) if not event.backward]
        return Counts(
            compiles=len(forward),
            graphs=sum(event.compiled and event.ops > 0 for event in forward),
            breaks=len(self.of(GraphBreak)),
            recompiles=len(self.of(Recompile)),
            limits=len(self.of(DynamoLimit)),
        )

    @property
    def changes(self) -> list[tuple[str, str, str, str]]:
        """Of each recompilation the guard to blame: kind, subject, old and new value."""
        blamed = [event.guards[0] for event in self.of(Recompile)]
        return [(guard.kind, guard.subject, guard.old, guard.new) for guard in blamed]

    def line(self, stack: int) -> int:
        return self.run.resolve(stack).line


class Counts(NamedTuple):
    compiles: int
    graphs: int
    breaks: int = 0
    recompiles: int = 0
    limits: int = 0


@contextmanager
def observing(path: Path) -> Iterator[list[Observed]]:
    """``with observing(path) as [...]: ...``; the list has one element afterwards."""
    found: list[Observed] = []
    with xlaprof.record(path, detail="full"):
        yield found
    found.append(Observed(path))


def observe(path: Path, program: Callable[[], Any]) -> Observed:
    """What a program does, recorded below the folder ``path``."""
    with observing(path / "run.log") as found:
        program()
    return found[0]


def line_of(function: Any, text: str) -> int:
    """Number of the first line of ``function`` that contains ``text``."""
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if text in line)
