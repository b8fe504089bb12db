"""Garbage collections that the program asks for itself, again and again."""

from __future__ import annotations

import re

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.fold.tallies import PauseTally
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.principles import HABIT
from xlaprof.analysis.sums import merged
from xlaprof.analysis.timeline import host
from xlaprof.events import Gc

#: a line that asks for a collection; ``collect`` may be another function's name, which is given more than a generation
COLLECTS = re.compile(r"\bgc\.collect\(|(?<![\w.])collect\(\s*(generation\s*=\s*)?[012]?\s*\)")


def asked_for(facts: Facts) -> dict[Place, list[tuple[int, PauseTally]]]:
    """Collections that the program asks for (``gc.collect()``), again and again, by the line that does."""
    found: dict[Place, list[tuple[int, PauseTally]]] = {}
    for (stack, cause), one in facts.run.pauses.items():
        place = facts.place(stack)
        if cause == host.GC and COLLECTS.search(place.code):
            found.setdefault(place, []).append((stack, one))
    return {place: some for place, some in found.items() if _comes_often([one for _, one in some])}


def collections(finding: Finding) -> frozenset[tuple[int | str, ...]]:
    """Stacks of the collections that a finding counts; empty for any other."""
    counted = finding.counted
    return counted.keys if isinstance(counted, Matching) and counted.event is Gc else frozenset()


def _comes_often(pauses: list[PauseTally]) -> bool:
    whole = merged(PauseTally, pauses)
    return whole.count >= HABIT and 2 * whole.most <= whole.total


def asked(facts: Facts) -> PauseTally:
    """All of them together."""
    return merged(PauseTally, [one for some in asked_for(facts).values() for _, one in some])
