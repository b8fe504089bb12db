"""Findings: one file per kind. A new kind is a new file here with a ``find(facts)``; nothing else changes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from xlaprof.analysis.facts import Facts
from xlaprof.analysis.model import Finding

Finder = Callable[[Facts], Iterator[Finding]]


@cache
def finders() -> tuple[Finder, ...]:
    """The ``find`` function of every module of this package, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").find for name in names)


def find(facts: Facts) -> tuple[Finding, ...]:
    """All findings of a run, the one whose fix gives back most first."""
    found = [finding for finder in finders() for finding in finder(facts)]
    found.sort(key=lambda finding: (-finding.cost_s, finding.kind, finding.place.file, finding.place.line, finding.id))
    return tuple(found)
