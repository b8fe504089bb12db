"""Two runs side by side, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from textwrap import fill
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from xlaprof.analysis.gates.compare import Comparison, Pair, StepChange
from xlaprof.analysis.gates.difference import CONFIDENCE
from xlaprof.analysis.model import Finding
from xlaprof.pages.page import SEVERITY_STYLE, paragraph, table, title
from xlaprof.pages.words import many
from xlaprof.text.cells import shorten
from xlaprof.text.quantities import duration, plural
from xlaprof.text.strings import path_line, printable

_STYLE = {"faster": "bold green", "slower": "bold red", "same": "dim", "unknown": "dim"}


def render(comparison: Comparison, width: int) -> RenderableType:
    """The page, to be printed ``width`` columns wide."""
    parts: list[RenderableType] = [_header(comparison, width)]
    parts += [title("Figures", width), _figures(comparison, width)]
    parts.append(Text())
    for change in comparison.steps:
        parts.append(Text(f"{printable(change.name)} steps: {difference(change)}", _STYLE[change.verdict]))
    kept = [pair.after for pair in comparison.kept]
    sections: tuple[tuple[str, Sequence[Any], Callable[[Any, int], Iterator[Text]]], ...] = (
        ("New", comparison.new, partial(_finding, "+", "bold red")),
        ("Gone", comparison.gone, partial(_finding, "-", "bold green")),
        ("Changed", comparison.changed, _changed),
        ("As before", kept, partial(_finding, "=", "dim")),
    )
    for name, found, lines in sections:
        if found:
            parts.append(title(f"{name}: {plural(len(found), 'finding')}", width))
            parts += [line for one in found for line in lines(one, width)]
    parts.append(_verdict(comparison))
    return Group(*parts)


def _header(comparison: Comparison, width: int) -> Text:
    line = Text()
    for label, run in (("before", comparison.before), ("after", comparison.after)):
        line.append(f"{label:<8}", "bold")
        line.append(shorten(run.path, max(10, width - 30), keep_end=True), "bold cyan")
        line.append(f"  {duration(run.wall_s)} recorded\n", "dim")
        if run.argv:
            line.append(f"{'':8}{shorten(' '.join(run.argv), width - 8)}\n", "dim")
    for note in comparison.notes:
        line.append(f"{fill(f'! {printable(note)}', width, subsequent_indent='  ')}\n", "yellow")
    line.rstrip()
    return line


def _figures(comparison: Comparison, width: int) -> RenderableType:
    rows: list[tuple[str | Text, ...]] = []
    for change in comparison.steps:
        ratio = _ratio(change.before_s, change.after_s)
        counts = f"{change.before_count:,} and {change.after_count:,}"
        name = Text(f"{printable(change.name)} step, median of {counts}", "bold")
        rows.append((name, duration(change.before_s), duration(change.after_s), Text(ratio, _STYLE[change.verdict])))
    for quantity in comparison.quantities:
        if quantity.before or quantity.after:
            trend = Text(_ratio(quantity.before, quantity.after), "dim")
            rows.append((quantity.name, *(_value(v, quantity.unit) for v in (quantity.before, quantity.after)), trend))
    return table(("", "before", "after", " "), rows, width, text="")


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return duration(value)
    return f"{value:.1%}" if unit == "share" else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _ratio(before: float, after: float) -> str:
    return f"{after / before - 1:+.0%}" if before > 0 else ""


def difference(change: StepChange) -> str:
    """The step time in words: how much faster or slower, between which bounds, or why that is not known."""
    if change.by is None or change.low is None or change.high is None:
        few = min(change.before_count, change.after_count)
        return f"too few to compare ({plural(few, 'step')} in one of them, the first left out)"
    within = f"{change.low:+.1%} to {change.high:+.1%} with {CONFIDENCE:.0%} confidence"
    if change.verdict == "same":
        return f"no significant difference ({within})"
    return f"{abs(change.by):.1%} {change.verdict} ({within})"


def _finding(sign: str, style: str, finding: Finding, width: int) -> Iterator[Text]:
    place = finding.place
    head = Text(f"{sign} ", style)
    head.append(f"{finding.kind}  ", SEVERITY_STYLE[finding.severity])
    right = f"{many(finding)}   {duration(finding.cost_s)}   {finding.id}"
    room = max(12, width - head.cell_len - len(right) - 2)
    head.append(shorten(path_line(place.file, place.line), room, keep_end=True), "cyan")
    head.append(" " * max(2, width - head.cell_len - len(right)))
    head.append(right, "dim")
    yield head
    if place.code:
        yield Text(f"  | {shorten(place.code, width - 4)}", "bold")
    if sign == "+":
        yield paragraph("", finding.cause, width, indent="  ")
        yield paragraph("Fix: ", finding.advice, width, indent="  ")


def _changed(pair: Pair, width: int) -> Iterator[Text]:
    yield from _finding("~", "yellow", pair.after, width)
    a, b = pair
    costs = f"{duration(a.cost_s)} -> {duration(b.cost_s)}"
    if a.cost_per_step_s and b.cost_per_step_s:  # else it comes once, not in every step
        costs = f"{duration(a.cost_per_step_s)} -> {duration(b.cost_per_step_s)} per step"
    severity = f", {a.severity} -> {b.severity}" if a.severity != b.severity else ""
    yield Text(f"  {a.count:,} -> {b.count:,} times, {costs}{severity}", "yellow")


def _verdict(comparison: Comparison) -> Text:
    worse, better = ("; ".join(map(printable, reasons)) for reasons in (comparison.worse, comparison.better))
    if worse:
        return Text.assemble("\n", ("Worse: ", "bold red"), worse, f". Better: {better}." if better else ".")
    if better:
        return Text.assemble("\n", ("Better: ", "bold green"), f"{better}.")
    return Text.assemble("\n", ("No significant difference", "bold"), ".")
