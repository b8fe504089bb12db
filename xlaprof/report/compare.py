"""Two runs side by side, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from xlaprof.analysis.gates.compare import Comparison, Pair, Quantity, StepChange
from xlaprof.analysis.gates.difference import CONFIDENCE
from xlaprof.analysis.model import Finding
from xlaprof.report.page import SEVERITY_STYLE, new_table, paragraph, show_page, title
from xlaprof.text.cells import shorten
from xlaprof.text.quantities import duration, plural
from xlaprof.text.strings import path_line, printable

_STYLE = {"faster": "bold green", "slower": "bold red", "same": "dim", "unknown": "dim"}


def show(comparison: Comparison, console: Console | None = None) -> None:
    """Print the comparison on standard output."""
    show_page(lambda width: render(comparison, width), console)


def render(comparison: Comparison, width: int) -> RenderableType:
    """The page, to be printed ``width`` columns wide."""
    parts: list[RenderableType] = [_header(comparison, width)]
    parts += [title("Figures", width), _figures(comparison, width)]
    parts += list(_difference(comparison))
    for name, found, sign, style in (
        ("New", comparison.new, "+", "bold red"),
        ("Gone", comparison.gone, "-", "bold green"),
    ):
        if found:
            parts.append(title(f"{name}: {plural(len(found), 'finding')}", width))
            parts += [line for finding in found for line in _finding(sign, style, finding, width)]
    if comparison.changed:
        parts.append(title(f"Changed: {plural(len(comparison.changed), 'finding')}", width))
        parts += [line for pair in comparison.changed for line in _changed(pair, width)]
    if comparison.kept:
        parts.append(title(f"As before: {plural(len(comparison.kept), 'finding')}", width))
        parts += [line for pair in comparison.kept for line in _finding("=", "dim", pair.after, width, fix=False)]
    parts.append(_verdict(comparison))
    return Group(*parts)


def _header(comparison: Comparison, width: int) -> Text:
    line = Text()
    for label, run in (("before", comparison.before), ("after", comparison.after)):
        line.append(f"{label:<8}", "bold")
        facts = [f"{duration(run.wall_s)} recorded"]
        command = " ".join(printable(word) for word in run.argv)
        line.append(shorten(run.path, max(10, width - 30), keep_end=True), "bold cyan")
        line.append(f"  {facts[0]}\n", "dim")
        if command:
            line.append(f"{'':8}{shorten(command, width - 8)}\n", "dim")
    for note in comparison.notes:
        line.append(f"! {shorten(note, width - 2)}\n", "yellow")
    line.rstrip()
    return line


def _figures(comparison: Comparison, width: int) -> RenderableType:
    table = new_table()
    table.add_column("", overflow="ellipsis", max_width=max(20, width - 36))
    for heading in ("before", "after", ""):
        table.add_column(heading, justify="right")
    for change in comparison.steps:
        ratio = _ratio(change.before_s, change.after_s)
        counts = f"{change.before_count:,} and {change.after_count:,}"
        name = Text(f"{printable(change.name)} step, median of {counts}", "bold")
        table.add_row(name, duration(change.before_s), duration(change.after_s), Text(ratio, _STYLE[change.verdict]))
    for quantity in comparison.quantities:
        if quantity.before or quantity.after:
            trend = Text(_ratio(quantity.before, quantity.after), "dim")
            table.add_row(quantity.name, *_values(quantity), trend)
    return table


def _values(quantity: Quantity) -> tuple[str, str]:
    def shown(value: float) -> str:
        if quantity.unit == "s":
            return duration(value)
        return f"{value:.1%}" if quantity.unit == "share" else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"

    return shown(quantity.before), shown(quantity.after)


def _ratio(before: float, after: float) -> str:
    return f"{after / before - 1:+.0%}" if before > 0 else ""


def _difference(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text()
    for change in comparison.steps:
        yield Text(f"{printable(change.name)} steps: {difference(change)}", _STYLE[change.verdict])


def difference(change: StepChange) -> str:
    """The step time in words: how much faster or slower, between which bounds, or that it cannot be told."""
    if change.by is None or change.low is None or change.high is None:
        few = min(change.before_count, change.after_count)
        return f"too few to compare ({plural(few, 'step')} in one of them, the first left out)"
    within = f"{_signed(change.low)} to {_signed(change.high)} with {CONFIDENCE:.0%} confidence"
    if change.verdict == "same":
        return f"no difference that can be told ({within})"
    return f"{abs(change.by):.1%} {change.verdict} ({within})"


def _signed(share: float) -> str:
    return f"{share:+.1%}"


def _finding(sign: str, style: str, finding: Finding, width: int, fix: bool = True) -> Iterator[Text]:
    place = finding.place
    head = Text(f"{sign} ", style)
    head.append(f"{finding.kind}  ", SEVERITY_STYLE[finding.severity])
    right = f"{finding.count:,} x   {duration(finding.cost_s)}   {finding.id}"
    room = max(12, width - head.cell_len - len(right) - 2)
    head.append(shorten(path_line(place.file, place.line), room, keep_end=True), "cyan")
    head.append(" " * max(2, width - head.cell_len - len(right)))
    head.append(right, "dim")
    yield head
    if place.code:
        yield Text(f"  | {shorten(place.code, width - 4)}", "bold")
    if fix and sign == "+":
        yield paragraph("", finding.cause, width, indent="  ")
        yield paragraph("Fix: ", finding.advice, width, indent="  ")


def _changed(pair: Pair, width: int) -> Iterator[Text]:
    yield from _finding("~", "yellow", pair.after, width, fix=False)
    a, b = pair
    told = f"{a.count:,} -> {b.count:,} times, {duration(a.cost_per_step_s)} -> {duration(b.cost_per_step_s)} per step"
    if a.severity != b.severity:
        told += f", {a.severity} -> {b.severity}"
    yield Text(f"  {told}", "yellow")


def _verdict(comparison: Comparison) -> Text:
    line = Text("\n")
    if comparison.worse:
        line.append("Worse: ", "bold red")
        line.append("; ".join(map(printable, comparison.worse)))
        if comparison.better:
            line.append(f". Better: {'; '.join(map(printable, comparison.better))}")
    elif comparison.better:
        line.append("Better: ", "bold green")
        line.append("; ".join(map(printable, comparison.better)))
    else:
        line.append("No worse and no better, as far as can be told", "bold")
    line.append(".")
    return line
