"""Outcomes of sweeps, kept as JSON lines: several processes may append to one file."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from pathlib import Path

from .sweep import Outcome


def append(path: Path, outcome: Outcome) -> None:
    """Add one outcome to the file ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")


def read(path: Path) -> list[Outcome]:
    """The outcomes in ``path``; of an entry and dtype swept twice, the later."""
    latest: dict[tuple[str, str], Outcome] = {}
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        outcome = Outcome(**{f.name: fields[f.name] for f in dataclasses.fields(Outcome)})
        latest[outcome.entry, outcome.dtype] = outcome
    return list(latest.values())
