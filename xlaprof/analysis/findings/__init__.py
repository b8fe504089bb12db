"""Findings: one file per kind. A new kind is a new file here with a ``find(facts)``; nothing else changes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Finding

#: operations of findings that come first, whatever they were measured to cost: limits that switch compilation off
LOUD = "torch._dynamo.config."

#: findings that are weighed against each other; of more, the others come by their own gain
_WEIGHED = 12

Finder = Callable[[Facts], Iterator[Finding]]


@cache
def finders() -> tuple[Finder, ...]:
    """The ``find`` function of every module of this package, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").find for name in names)


def find(facts: Facts) -> tuple[Finding, ...]:
    """All findings of a run, the one whose fix gives back most first."""
    found = [finding for finder in finders() for finding in finder(facts)]
    found.sort(key=lambda finding: -max(finding.gain_s, finding.cost_s))
    found[:_WEIGHED] = [
        msgspec.structs.replace(finding, gain_last_s=facts.gain_last_s(finding)) for finding in found[:_WEIGHED]
    ]
    found.sort(
        key=lambda finding: (
            not finding.operation.startswith(LOUD),
            -_worth_s(finding),
            -finding.cost_s,
            finding.kind,
            finding.place.file,
            finding.place.line,
            finding.id,
        )
    )
    return _with_ids_apart(found)


def _worth_s(finding: Finding) -> float:
    """What a fix gives back, first of all fixes or last: the mean, for two defects may hide each other.

    (Of two this is what each contributes, Shapley's value.)
    """
    last = finding.gain_s if finding.gain_last_s is None else finding.gain_last_s
    return (finding.gain_s + last) / 2


def _with_ids_apart(found: list[Finding]) -> tuple[Finding, ...]:
    """Lines that read the same have the same id: from the second one on, in order of lines, it gets a number."""
    taken: dict[str, int] = {}
    numbered: dict[int, Finding] = {}
    for i in sorted(range(len(found)), key=lambda i: found[i].place.line):
        finding = found[i]
        taken[finding.id] = nth = taken.get(finding.id, 0) + 1
        numbered[i] = finding if nth == 1 else msgspec.structs.replace(finding, id=f"{finding.id}-{nth}")
    return tuple(numbered[i] for i in range(len(found)))
