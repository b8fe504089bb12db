"""Lines of the program with what they cost, the code around them, and copies between host and device by line."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from xlaprof.analysis.model import Place
from xlaprof.analysis.views.details import Details
from xlaprof.pages.source import source
from xlaprof.text.quantities import duration, size_text

from .gather import Gathered
from .index import Index

_FILES = 40
_AROUND = 8
_TRANSFERS = 500

_Line = tuple[str, int]
_Item = tuple[str, float, str]  # part, seconds, in words


def files(of: Gathered, details: Details) -> list[dict[str, Any]]:
    """The files with lines that cost something or have a finding, each with the code around those lines."""
    costs: dict[str, dict[int, list[_Item]]] = defaultdict(lambda: defaultdict(list))  # by file and line
    places: dict[_Line, Place] = {}
    for line in details.lines:
        places[line.place.file, line.place.line] = line.place
        costs[line.place.file][line.place.line] += line.items
    found: dict[_Line, list[int]] = defaultdict(list)
    for number, finding in enumerate(of.report.findings, 1):
        if finding.place.line:
            places.setdefault((finding.place.file, finding.place.line), finding.place)
            found[finding.place.file, finding.place.line].append(number)
            costs[finding.place.file].setdefault(finding.place.line, [])
    cwd = of.run.header.cwd if of.run.header is not None else ""
    ranked = sorted(costs.items(), key=lambda item: -sum(map(_seconds, item[1].values())))
    return [_file(name, lines, places, found, cwd) for name, lines in ranked[:_FILES]]


def _seconds(items: list[_Item]) -> float:
    return sum(seconds for _, seconds, _ in items)


def _file(
    name: str, costs: dict[int, list[_Item]], places: dict[_Line, Place], found: dict[_Line, list[int]], cwd: str
) -> dict[str, Any]:
    texts: dict[int, str] = {}
    remarks: dict[str, None] = {}
    for number in sorted(costs):
        read = source(places[name, number], cwd, _AROUND)
        texts |= {one.line: one.code.expandtabs(4) for one in read.lines if one.line not in texts or one.marked}
        if read.remark:
            remarks[read.remark] = None
        texts.setdefault(number, "")
    seconds = sum(map(_seconds, costs.values()))
    return {
        "file": name,
        "seconds": seconds,
        "text": duration(seconds),
        "remarks": list(remarks)[:3],
        "lines": [
            _line(number, code, costs[number], found.get((name, number), []))
            if number in costs
            else {"n": number, "code": code}
            for number, code in sorted(texts.items())
        ],
    }


def _line(number: int, code: str, items: list[_Item], findings: list[int]) -> dict[str, Any]:
    seconds = _seconds(items)
    ranked = sorted(items, key=lambda item: -item[1])
    return {
        "n": number,
        "code": code,
        "seconds": seconds,
        "text": duration(seconds) if seconds else "",
        "items": [[part, took, duration(took) if took else "", text] for part, took, text in ranked],
        "findings": findings,
    }


def transfers(details: Details, index: Index) -> list[dict[str, Any]]:
    """Copies between host and device by line, the longest first."""
    return [
        {
            "way": "to the device" if one.up else "from the device",
            "op": one.operation,
            "place": index.place(one.place),
            "count": f"{one.count:,}",
            "seconds": one.total_s,
            "total": duration(one.total_s),
            "wait": "" if one.up else duration(one.wait_s),
            "size": size_text(one.bytes),
        }
        for one in details.transfers
    ]
