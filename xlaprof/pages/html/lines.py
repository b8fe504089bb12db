"""Lines of the program with what they cost: transfers, compiling, breaks, waiting; and the code around them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from xlaprof.analysis.model import Place
from xlaprof.analysis.names import Names
from xlaprof.analysis.timeline.host import CAUSES
from xlaprof.pages.source import source
from xlaprof.text.quantities import duration, plural, size_text, times

from .gather import Gathered
from .index import Index

_FILES = 40
_LINES = 400  # of a file, those that cost most
_AROUND = 8
_TRANSFERS = 500

Line = tuple[str, int]


class Costs:
    """What lines of the program cost, by file and line."""

    def __init__(self) -> None:
        self.places: dict[Line, Place] = {}
        self.items: dict[Line, list[tuple[str, float, str]]] = defaultdict(list)  # part, seconds, text

    def add(self, place: Place, part: str, seconds: float, text: str) -> None:
        if place.file and place.line:
            self.places.setdefault((place.file, place.line), place)
            self.items[place.file, place.line].append((part, seconds, text))

    def seconds(self, line: Line) -> float:
        return sum(seconds for _, seconds, _ in self.items[line])


def costs(of: Gathered) -> Costs:
    """All lines that cost something, from the totals of the run."""
    run, names, found = of.run, of.run.names, Costs()
    compiled: dict[int, list[int]] = {}
    for record in run.compiles:
        sums = compiled.setdefault(record.stack, [0, 0])
        sums[0] += 1
        sums[1] += record.dur
    for stack, call in run.torch_compile.calls.items():
        found.add(names.place(stack), "compile", call.dur / 1e9, f"torch.compile compiled {times(call.compiles)}")
    for (place, _), jitted in run.jit.functions.items():
        found.add(names.place(place), "compile", jitted.dur / 1e9, f"JAX, {plural(jitted.programs, 'program')}")
    for stack, (count, ns) in compiled.items():
        found.add(names.place(stack), "compile", ns / 1e9, f"compiled {times(count)}")
    for (stack, op), read in run.reads.items():
        what = f"{names.text(op) or 'read'} {times(read.count)}"
        found.add(names.place(stack), "transfer wait", (read.dur - read.compiled) / 1e9, what)
    for stack, (count, ns, size) in of.lanes.uploads.items():
        found.add(names.place(stack), "upload", ns / 1e9, f"uploaded {times(count)}, {size_text(size)}")
    for (stack, op), fallback in run.fallbacks.items():
        what = f"{names.text(op)} on the CPU {times(fallback.count)}"
        found.add(names.place(stack), "fallback", (fallback.dur - fallback.compiled) / 1e9, what)
    for (stack, cause), pause in run.pauses.items():
        found.add(names.place(stack), CAUSES[cause], pause.total / 1e9, f"{CAUSES[cause]} {times(pause.count)}")
    for stack, site in run.sites.items():
        if site.dispatch.count:
            what = f"barrier, reached {times(site.visits)}"
            handing = max(0, site.dispatch.total - compiled.get(stack, (0, 0))[1])  # a barrier compiles, too
            found.add(names.place(stack), "dispatch", handing / 1e9, what)
    for (stack, reason), broken in run.torch_compile.breaks.items():
        found.add(names.place(stack), "graph break", broken.restarted / 1e9, f"breaks the graph: {reason}")
    return found


def files(of: Gathered, found: Costs) -> list[dict[str, Any]]:
    """The files with lines that cost something or have a finding, each with the code around those lines."""
    header = of.run.header
    cwd = header.cwd if header is not None else ""
    marked: dict[Line, list[int]] = defaultdict(list)
    for number, finding in enumerate(of.report.findings, 1):
        if finding.place.line:
            line = finding.place.file, finding.place.line
            found.places.setdefault(line, finding.place)
            marked[line].append(number)
    by_file: dict[str, list[Line]] = defaultdict(list)
    for line in found.places:
        by_file[line[0]].append(line)
    ranked = sorted(by_file.items(), key=lambda item: -sum(map(found.seconds, item[1])))
    return [_file(name, lines, found, marked, cwd) for name, lines in ranked[:_FILES]]


def _file(name: str, lines: list[Line], found: Costs, marked: dict[Line, list[int]], cwd: str) -> dict[str, Any]:
    kept = sorted(lines, key=lambda line: (not marked.get(line), -found.seconds(line)))[:_LINES]
    texts: dict[int, str] = {}
    remarks: dict[str, None] = {}
    for line in sorted(kept):
        read = source(found.places[line], cwd, _AROUND)
        texts |= {one.line: one.code.expandtabs(4) for one in read.lines if one.line not in texts or one.marked}
        if read.remark:
            remarks[read.remark] = None
        texts.setdefault(line[1], "")
    costed = {line[1]: line for line in kept}
    return {
        "file": name,
        "seconds": sum(map(found.seconds, lines)),
        "text": duration(sum(map(found.seconds, lines))),
        "remarks": list(remarks)[:3],
        "lines": [_line(number, texts[number], costed.get(number), found, marked) for number in sorted(texts)],
    }


def _line(number: int, code: str, line: Line | None, found: Costs, marked: dict[Line, list[int]]) -> dict[str, Any]:
    if line is None:
        return {"n": number, "code": code}
    items = sorted(found.items[line], key=lambda item: -item[1])
    seconds = found.seconds(line)
    return {
        "n": number,
        "code": code,
        "seconds": seconds,
        "text": duration(seconds) if seconds else "",
        "items": [[part, seconds, duration(seconds) if seconds else "", text] for part, seconds, text in items],
        "findings": marked.get(line, []),
    }


def transfers(of: Gathered, names: Names, index: Index) -> list[dict[str, Any]]:
    """Copies between host and device by line, the longest first."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for (stack, op), read in of.run.reads.items():
        row = _transfer("from the device", names.text(op), index.place(names.place(stack)), read.count, read.dur)
        rows.append((read.dur, row | {"wait": duration(read.wait / 1e9), "size": size_text(read.bytes)}))
    for stack, (count, ns, size) in of.lanes.uploads.items():
        row = _transfer("to the device", "", index.place(names.place(stack)), count, ns)
        rows.append((ns, row | {"wait": "", "size": size_text(size)}))
    return [row for _, row in sorted(rows, key=lambda one: -one[0])[:_TRANSFERS]]


def _transfer(way: str, op: str, place: int, count: int, ns: int) -> dict[str, Any]:
    return {"way": way, "op": op, "place": place, "count": f"{count:,}", "total": duration(ns / 1e9), "ns": ns}
