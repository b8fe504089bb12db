"""The findings of the page, each with all that ``xlaprof explain`` says of it, written out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.occurrences import Occurrence, Occurrences
from xlaprof.analysis.places import called
from xlaprof.pages.source import Source, source
from xlaprof.pages.words import gain, many, per_step, spaced, worth
from xlaprof.text.quantities import duration, percent, times
from xlaprof.text.strings import path_line, printable, with_article

from .close_ups import SHOWN
from .gather import Gathered

_VALUES = 50


def findings(of: Gathered) -> list[dict[str, Any]]:
    """All findings, as the report ranks them."""
    shown = []
    for number, finding in enumerate(of.report.findings, 1):
        happened = of.happened[number - 1] if number <= len(of.happened) else None
        shown.append(_finding(of, number, finding, happened))
    return shown


def _finding(of: Gathered, number: int, finding: Finding, happened: Occurrences | None) -> dict[str, Any]:
    header = of.run.header
    cwd = header.cwd if header is not None else ""
    stepped = bool(of.report.steps)
    since = ["--since-step", str(of.since_step)] if of.since_step is not None else []
    cost = f"costs {duration(finding.cost_s)}" if finding.cost_s > 0 else ""
    return {
        "number": number,
        "id": finding.id,
        "kind": finding.kind,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "operation": finding.operation,
        "count": many(finding),
        "cost": spaced(cost, per_step(finding.cost_per_step_s) * stepped),
        "gain": gain(finding, stepped),
        "rhythm": finding.rhythm,
        "where": path_line(finding.place.file, finding.place.line),
        "file": finding.place.file,
        "line": finding.place.line,
        "func": "" if finding.place.func == "<module>" else finding.place.func,
        "module": finding.place.module,
        "library": [called(line) for line in reversed(finding.place.library)],
        "code": _code(source(finding.place, cwd)),
        "cause": finding.cause,
        "parts": [f"With it {with_article(one.kind)}, {_part(one)}" for one in finding.parts],
        "advice": finding.advice,
        "remedy": finding.remedy.expandtabs(4),
        "change": {"what": finding.change.what, "old": finding.change.old, "new": finding.change.new}
        if finding.change is not None
        else None,
        "worth": [[label.rstrip(": "), text] for label, text in worth(finding, of.report)],
        "buckets": list(_buckets(finding)),
        "values": [[value, count] for value, count in finding.values[:_VALUES]],
        "values_left_out": max(0, len(finding.values) - _VALUES),
        "evidence": list(finding.evidence),
        "also": [_other(place, cwd) for place in finding.also],
        "happened": _happened(happened) if happened is not None else None,
        "explain": shlex.join(["xlaprof", "explain", printable(of.report.run.path), str(number), *since]),
    }


def _part(part: Finding) -> str:
    return f"{times(part.count)}, {duration(part.cost_s)} of the cost: {part.cause}"


def _code(found: Source) -> dict[str, Any]:
    lines = [[line.line, line.code.expandtabs(4), line.marked] for line in found.lines]
    return {"lines": lines, "remark": found.remark}


def _other(place: Place, cwd: str) -> dict[str, Any]:
    return {"where": path_line(place.file, place.line), "func": place.func, "code": _code(source(place, cwd, 1))}


def _buckets(finding: Finding) -> Iterator[list[str | bool]]:
    best = min(finding.buckets, key=lambda one: one.cost_s, default=None)
    for one in finding.buckets:
        edges = ", ".join(map(str, one.edges))
        figures = (str(one.compiles), duration(one.saved_s), percent(one.waste), duration(one.cost_s))
        yield [str(len(one.edges)), edges, *figures, one == best]


def _happened(happened: Occurrences) -> dict[str, Any]:
    return {
        "text": f"{times(happened.total)} in {duration(happened.wall_s)}",
        "total": happened.total,
        "parts": list(happened.parts),
        "first": [_occurrence(one) for one in happened.first[:SHOWN]],
        "more": happened.total - sum(one.count for one in happened.first[:SHOWN]),
    }


def _occurrence(one: Occurrence) -> dict[str, Any]:
    return {
        "at": f"{one.at_s:.3f} s",
        "at_ns": round(one.at_s * 1e9),
        "dur_ns": round(one.dur_s * 1e9),
        "dur": duration(one.dur_s) if one.dur_s else "",
        "step": f"step {one.step:,}" if one.step is not None else "outside named steps",
        "many": f"{one.count:,} x" if one.count > 1 else "",
        "told": one.detail,
    }
