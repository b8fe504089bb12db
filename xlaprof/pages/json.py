"""A report as JSON: the contract of ``xlaprof report --json``, described in docs/report-json.md; and two compared.

The structs of :mod:`xlaprof.analysis.model` go out under their own names, lengths in seconds; what the contract names
differently is renamed here and nowhere else. Keys are only ever added; a change of meaning raises :data:`SCHEMA`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec import to_builtins as _plain

from xlaprof.analysis.gates.compare import Comparison
from xlaprof.analysis.gates.difference import CONFIDENCE
from xlaprof.analysis.model import Finding, Place, Report
from xlaprof.analysis.occurrences import Occurrences
from xlaprof.pages.source import Source
from xlaprof.text.parts import parts

SCHEMA = 1
_CAUSE = ("cause", "seconds")


def to_json(report: Report, hidden: int = 0) -> dict[str, Any]:
    """The report as plain dicts, lists, strings and finite numbers. ``hidden``: findings that were left out of it."""
    main = report.steps[0] if report.steps else None
    gaps = [{**_plain(gap), "blame": _rows(_CAUSE, gap.blame)} for gap in report.idle.gaps]
    return {
        "schema": SCHEMA,
        "run": _plain(report.run),
        "steps": {
            "count": sum(stat.count for stat in report.steps),
            "name": main.name if main else None,
            "first_s": main.first_s if main else None,
            "median_s": main.median_s if main else None,
            "p95_s": main.p95_s if main else None,
            "inferred": bool(main and main.inferred),
            "parts": _rows(("part", "seconds"), parts(main.split)) if main else [],
            "by_name": _plain(report.steps),
        },
        "counters": dict(report.counters),
        "seconds": dict(report.seconds),
        "scopes": _plain(report.scopes),
        "idle": {**_plain(report.idle), "causes": _rows(_CAUSE, report.idle.causes), "gaps": gaps},
        "findings": list(map(finding_to_json, report.findings)),
        "gain_s": report.predicted.gain_s if report.predicted is not None else 0.0,
        "predicted": _plain(report.predicted),
        "compilation": _plain(report.compilation),
        "torch_compile": _plain(report.torch_compile),
        "jax": _plain(report.jax),
        "torch_tpu": _plain(report.torch_tpu),
        "accounts": _plain(report.accounts),
        "memory": _plain(report.memory),
        "hidden": hidden,
        "clean": report.clean and not hidden,
        "observed": report.observed,
    }


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """Two runs, as docs/compare.md describes it."""
    return {
        "schema": SCHEMA,
        "worse": list(comparison.worse),
        "better": list(comparison.better),
        "before": _plain(comparison.before),
        "after": _plain(comparison.after),
        "notes": list(comparison.notes),
        "confidence": CONFIDENCE,
        "steps": _plain(comparison.steps),
        "figures": _plain(comparison.quantities),
        "gone": list(map(finding_to_json, comparison.gone)),
        "new": list(map(finding_to_json, comparison.new)),
        "changed": [
            {"before": finding_to_json(pair.before), "after": finding_to_json(pair.after)}
            for pair in comparison.changed
        ],
        "kept": [finding_to_json(pair.after) for pair in comparison.kept],
    }


def explanation_to_json(
    finding: Finding, happened: Occurrences, mine: Source, others: tuple[Source, ...]
) -> dict[str, Any]:
    """One finding in depth: its fields as in the list of a report, with its code and the times that it happened."""
    return {
        **finding_to_json(finding),
        "source": {"state": mine.state, "now": mine.now or None, "lines": _plain(mine.lines)},
        "also": [{**_plain(other.place), "state": other.state, "lines": _plain(other.lines)} for other in others],
        "occurrences": {
            "total": happened.total,
            "parts": list(happened.parts),
            "wall_s": happened.wall_s,
            "first": _plain(happened.first),
        },
    }


def text(value: dict[str, Any]) -> str:
    """Indented JSON in ASCII, ending in a line feed: it fits any pipe and holds any string."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """One finding, as in the list of a report: its fields, and those of its place."""
    place = finding.place
    names = (name for name in finding.__struct_fields__ if name not in ("place", "counted", "parts"))
    return {
        "id": finding.id,
        "kind": finding.kind,
        "severity": finding.severity,
        **place_to_json(place),
        "module": place.module,
        "library": [{**place_to_json(line), "loop": line.loop} for line in place.library],
        **{name: _plain(getattr(finding, name)) for name in names},
        "values": _rows(("value", "count"), finding.values),
        "parts": list(map(finding_to_json, finding.parts)),
    }


def place_to_json(place: Place) -> dict[str, Any]:
    """A line of code under the names of the contract."""
    return {"file": place.file, "line": place.line, "function": place.func, "code": place.code}


def _rows(names: tuple[str, str], rows: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
