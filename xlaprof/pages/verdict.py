"""The output of ``xlaprof check``: a page, JSON, and annotations for GitHub."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from xlaprof.analysis.gates.budget import Offence, Verdict, lines
from xlaprof.analysis.gates.limits import LIMITS, Budget
from xlaprof.pages.json import SCHEMA, place_to_json
from xlaprof.text.strings import printable


def page(verdicts: Sequence[Verdict]) -> str:
    """For people: one line for a run that keeps its budget, else the limits that it breaks and the lines to blame."""
    kept = [
        f"{printable(verdict.path)} keeps its budget: {printable('; '.join(used.text for used in verdict.used))}"
        for verdict in verdicts
        if verdict.kept
    ]
    return "".join(f"{line}\n" for line in [*kept, *lines(verdicts)])


def to_json(verdicts: Sequence[Verdict], budget: Budget, config: str | None) -> dict[str, Any]:
    """As docs/ci.md describes it."""
    return {
        "schema": SCHEMA,
        "ok": all(verdict.kept for verdict in verdicts),
        "config": config,
        "budget": {limit.name: getattr(budget, limit.name) for limit in LIMITS if budget.given(limit.name)},
        "logs": [
            {
                "path": verdict.path,
                "rank": verdict.rank,
                "ok": verdict.kept,
                "steps": verdict.steps,
                "warnings": list(verdict.warnings),
                "limits": [
                    {
                        "name": used.budget,
                        "limit": used.limit,
                        "value": used.value,
                        "ok": not used.broken,
                        "text": used.text,
                        "findings": [_offence(offence) for offence in used.offences],
                    }
                    for used in verdict.used
                ],
            }
            for verdict in verdicts
        ],
    }


def github(verdicts: Sequence[Verdict], root: str) -> Iterator[tuple[str, str, str, int]]:
    """Errors for GitHub to show, one for each line to blame; paths below ``root`` are relative to it.

    Each is its title and text, and its file and line, "" and 0 where there are none.
    """
    blamed: dict[tuple[str, str, str, int], tuple[Offence, list[str]]] = {}
    for verdict in verdicts:
        for used in verdict.breaches:
            if not used.offences:
                yield f"xlaprof: {used.budget}", f"{verdict.path}: {used.text}", "", 0
            for offence in used.offences:
                _, limits = blamed.setdefault(offence.key, (offence, []))
                limits.append(f"{used.budget} ({used.text})")
    for offence, limits in blamed.values():
        text = f"{offence.cause}\nFix: {offence.advice}\nBreaks {'; '.join(dict.fromkeys(limits))}."
        yield f"xlaprof: {offence.kind}", text, _below(offence.place.file, root), offence.place.line


def _below(file: str, root: str) -> str:
    if not os.path.isabs(file):
        return file
    relative = os.path.relpath(file, root)
    return file if relative.startswith(os.pardir) else relative


def _offence(offence: Offence) -> dict[str, Any]:
    return {
        "id": offence.id or None,
        "kind": offence.kind,
        **place_to_json(offence.place),
        "count": offence.count,
        "cause": offence.cause,
        "advice": offence.advice,
    }
