"""Record a program of JAX: its events, in what its calls differed, and its report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from recording import Recorded, recording

from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.run import Run
from xlaprof.events import ArgumentChange, JitCompile


class Told:
    """A program that was recorded: its events, and its report."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.report: Report = Run().feed_all(recorded.events).report()

    @property
    def programs(self) -> list[JitCompile]:
        return self.recorded.of(JitCompile)

    def of(self, name: str) -> list[JitCompile]:
        return [one for one in self.programs if self.recorded.texts[one.func] == name]

    def changes(self, name: str) -> list[list[ArgumentChange]]:
        return [one.changes for one in self.of(name)]

    @property
    def finding(self) -> Finding:
        assert len(self.report.findings) == 1, [(one.kind, one.cause) for one in self.report.findings]
        return self.report.findings[0]


def told(path: Path, program: Callable[[], Any]) -> Told:
    jax.clear_caches()  # what another test compiled is compiled again
    with recording(path) as recorded:
        program()
    return Told(recorded())


Tell = Callable[[Callable[[], Any]], Told]
