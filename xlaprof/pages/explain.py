"""One finding in depth, for people: its code, when it happened, what it was, what it costs, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from xlaprof.analysis.model import Finding, Place, Report
from xlaprof.analysis.occurrences import Occurrence, Occurrences
from xlaprof.analysis.places import called
from xlaprof.pages.page import SEVERITY_STYLE, paragraph, parts_of, table, title, where
from xlaprof.pages.source import Source
from xlaprof.pages.words import worth
from xlaprof.text.cells import bar, shorten, sparkline
from xlaprof.text.quantities import duration, percent, times
from xlaprof.text.strings import printable

_VALUES = 12  # rows of a histogram
_SHOWN = 6  # occurrences


def render(
    finding: Finding,
    report: Report,
    happened: Occurrences,
    sources: tuple[Source, tuple[Source, ...]],
    width: int,
) -> RenderableType:
    """The page, to be printed ``width`` columns wide. ``sources``: of the line, and of the others that take part."""
    mine, others = sources
    parts: list[RenderableType] = [_head(finding), where(finding.place, width)]
    if finding.place.module:
        parts.append(Text(f"   in module {shorten(finding.place.module, width - 13)}", "dim"))
    parts += list(_code(mine, width))
    parts += list(_library(finding.place, width))
    parts.append(Text())
    parts.append(paragraph("Cause: ", finding.cause, width))
    parts += parts_of(finding, width)
    parts.append(paragraph("Fix: ", finding.advice, width, "bold green"))
    parts += [paragraph(label, text, width) for label, text in worth(finding, report)]
    if finding.remedy:
        parts += [
            title("Code that does it", width),
            *(Text(f"   {printable(line.expandtabs(4))}") for line in finding.remedy.splitlines()),
        ]
    if finding.buckets:
        parts += [title("Sizes to pad to", width), _buckets(finding, width)]
    if finding.values:
        parts += [title("Values seen", width, "in order of first use"), _values(finding, width)]
    if finding.evidence:
        parts.append(title("Evidence", width))
        parts += [paragraph("- ", fact, width) for fact in finding.evidence]
    if happened.total:
        parts += list(_timeline(happened, width))
    if others:
        parts.append(title("Other lines that take part", width))
        for number, other in enumerate(others):
            parts += [Text()] if number else []
            parts.append(where(other.place, width))
            parts += list(_code(other, width))
    parts.append(Text(f"\nMore on findings of this kind: xlaprof explain {finding.kind}", "dim"))
    return Group(*parts)


def _head(finding: Finding) -> Text:
    head = Text.assemble((finding.kind, SEVERITY_STYLE[finding.severity]), f"  {finding.severity}  ")
    if finding.operation:
        head.append(f"{printable(finding.operation)}  ", "dim")
    head.append(finding.id, "dim")
    return head


def _library(place: Place, width: int) -> Iterator[Text]:
    """The lines of libraries from the user's line to the innermost."""
    for line in reversed(place.library):
        yield Text.assemble(("   in ", "dim"), shorten(called(line), width - 6))


def _code(mine: Source, width: int) -> Iterator[Text]:
    if mine.remark:
        yield Text(
            fill(f"! {printable(mine.remark)}", width, initial_indent="   ", subsequent_indent="     "), "yellow"
        )
    digits = len(str(max((line.line for line in mine.lines), default=0)))
    for line in mine.lines:
        shown = Text("   > " if line.marked else "     ", "bold red")
        shown.append(f"{line.line:>{digits}} | ", "dim")
        shown.append(shorten(line.code.expandtabs(4), max(8, width - shown.cell_len)), "bold" if line.marked else "")
        yield shown


def _buckets(finding: Finding, width: int) -> RenderableType:
    best = min(finding.buckets, key=lambda one: one.cost_s)
    rows = []
    for one in finding.buckets:
        edges = ", ".join(map(str, one.edges))
        row = (str(len(one.edges)), edges, str(one.compiles), duration(one.saved_s), percent(one.waste))
        rows.append([Text(cell, "bold green" if one == best else "") for cell in (*row, duration(one.cost_s))])
    headings = ("   sizes", "pad to", "compiles", "saved", "padding", "cost")
    return table(headings, rows, width, ("padding", "saved"), text="pad to")


def _values(finding: Finding, width: int) -> RenderableType:
    shown = finding.values[:_VALUES]
    most = max((count for _, count in shown), default=1)
    label = min(max(len(printable(value)) for value, _ in shown), max(12, width // 2))
    lines = Text()
    for number, (value, count) in enumerate(shown):
        lines.append("\n" if number else "")
        lines.append(f"   {shorten(value, label):<{label}}  ")
        room = max(4, width - label - 5 - 9)
        lines.append(f"{bar(count / most if most else 0.0, room):<{room}}", "cyan")
        lines.append(f"{count:>8,}x")
    if len(finding.values) > _VALUES:
        lines.append(f"\n   and {len(finding.values) - _VALUES} more", "dim")
    return lines


def _timeline(happened: Occurrences, width: int) -> Iterator[RenderableType]:
    yield title("When", width, f"{times(happened.total)} in {duration(happened.wall_s)}")
    line = Text("   ")
    each = -(-len(happened.parts) // max(1, width - 3))  # parts to a cell
    summed = [sum(happened.parts[first : first + each]) for first in range(0, len(happened.parts), max(1, each))]
    blank = [count if count else -1 for count in summed]
    marks = sparkline([max(count, 0) for count in blank], len(blank))
    line.append("".join("·" if count < 0 else mark for count, mark in zip(blank, marks, strict=True)), "cyan")
    yield line
    shown = happened.first[:_SHOWN]
    yield from (_occurrence(one, width) for one in shown)
    if more := happened.total - sum(one.count for one in shown):
        yield Text(f"   and {more:,} more", "dim")


def _occurrence(one: Occurrence, width: int) -> Text:
    step = f"step {one.step:,}" if one.step is not None else "outside named steps"
    many = f"  {one.count} x" if one.count > 1 else ""
    line = Text(f"   {one.at_s:>9.3f} s  {step:<12}  {duration(one.dur_s) if one.dur_s else '':>8}{many}")
    line.rstrip()
    if one.detail and (room := width - line.cell_len - 2) >= min(12, cell_len(one.detail)):
        line.append(f"  {shorten(one.detail, room)}", "dim")
    return line
