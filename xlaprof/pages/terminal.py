"""A report for people, in a terminal or a pipe: one page, the most expensive finding first.

Everything that comes from the log (names, code, paths) is put into :class:`rich.text.Text`, never into markup, and
loses its control characters on the way: nothing in a log can draw on the terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from xlaprof.analysis.model import (
    SEVERITIES,
    CompiledFunctions,
    Finding,
    IdleStat,
    Report,
    RunInfo,
    ScopeStat,
    StepStats,
    TorchTpuStat,
)
from xlaprof.analysis.outcome import without_findings
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import FELT, NOTICED
from xlaprof.analysis.torch_tpu.words import cut, put_off, reason
from xlaprof.pages.page import SEVERITY_STYLE, paragraph, parts_of, table, title, under, where
from xlaprof.pages.words import autotuned, facts, gain, many, per_step, prediction, spaced, spent, warnings
from xlaprof.text.cells import bar, fit, shorten, sparkline
from xlaprof.text.parts import mean_parts
from xlaprof.text.quantities import duration, percent, plural, size_text, times
from xlaprof.text.strings import printable

_SCOPES = 12  # rows
_FUNCTIONS = 8  # of torch.compile
_REASONS = 8  # of TorchTPU
_LABEL = 30  # columns beside a bar
_WORTH_SAYING = 0.001  # of the run
_COMPILED_S = 1.0  # seconds of compiling from which on the page has a section on it

_PART_STYLE = {
    "compile": "magenta",
    "tracing": "blue",
    "upload": "cyan",
    "dispatch": "green",
    "transfer wait": "red",
    "fallback": "yellow",
    "data wait": "bright_yellow",
    "garbage collection": "bright_magenta",
    "named scopes": "bright_blue",
    "other": "white",
}


def render(report: Report, width: int, hidden: int = 0, since_step: int | None = None) -> RenderableType:
    """The page, to be printed ``width`` columns wide.

    ``hidden``: how many findings were left out of it. ``since_step``: the step at which it begins.
    """
    parts: list[RenderableType] = [_header(report.run, width)]
    if report.steps:
        parts += [title("Steps", width), _steps(report.steps, width)]
        parts += list(_split(report.steps[0], width))
    if report.idle.idle_s > 0:
        parts += list(_idle(report.idle, width))
    if report.compilation.total_s + report.compilation.loaded_s >= _COMPILED_S:
        parts += list(_compilation(report, width))
    if report.torch_compile.count or report.torch_compile.run_time.text:
        parts += list(_functions(report, "torch.compile", "graph", report.torch_compile, width))
    if report.jax.count:
        parts += list(_functions(report, "JAX", "program", report.jax, width))
    if report.torch_tpu.batches:
        parts += list(_torch_tpu(report.torch_tpu, width))
    if report.scopes:
        parts += [title("Scopes", width), _scopes(report.scopes, width)]
    since = ["--since-step", str(since_step)] if since_step is not None else []
    parts += list(_findings(report, width, hidden, since))
    return Group(*parts)


def _header(run: RunInfo, width: int) -> Text:
    line = Text.assemble(("xlaprof", "bold green"), "  ", (shorten(run.path or "a recording", width - 9), "bold"))
    if run.argv:
        line.append(f"\n{shorten(' '.join(run.argv), width)}")
    line.append("\n")
    line.append("\n".join(_wrap(facts(run), width)), "dim")
    for warning in warnings(run):
        line.append(f"\n! {warning}", "yellow")
    return line


def _wrap(words: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 3 + len(word) <= width:
            lines[-1] += f" · {word}"
        else:
            lines.append(word)
    return lines


def _steps(steps: tuple[StepStats, ...], width: int) -> RenderableType:
    headings = ("", "steps", "median", "p95", "max", "first", "last ones")
    rows = [
        (
            Text(shorten(stat.name + (" (between barriers)" if stat.inferred else ""), 26), "bold"),
            f"{stat.count:,}",
            Text(duration(stat.median_s), "bold"),
            duration(stat.p95_s),
            duration(stat.max_s),
            Text(duration(stat.first_s), "dim"),
            Text(sparkline(stat.recent_s[1:] if stat.count == len(stat.recent_s) > 1 else stat.recent_s, 20), "cyan"),
        )
        for stat in steps
    ]
    return table(headings, rows, width, ("last ones", "p95", "first", "max"), text="", curve="last ones")


def _split(stat: StepStats, width: int) -> Iterator[RenderableType]:
    split = stat.split
    count = max(1, stat.count - 1)
    if split.total_s <= 0:
        return
    mean = split.total_s / count
    without = ", without the first" if stat.count > 1 else ""
    yield title("Where a step's time goes", width, f"mean of {count:,}{without}: {duration(mean)}")
    yield _bars([(name, value, _PART_STYLE[name]) for name, value in mean_parts(split, count)], mean, width)
    if split.device_busy_s > 0:
        yield Text()
        yield _bars([("device busy", split.device_busy_s / count, "green")], mean, width)


def _idle(idle: IdleStat, width: int) -> Iterator[RenderableType]:
    note = f"{percent(idle.idle_ratio)} of {duration(idle.window_s)}, from the first execution to the last"
    yield title("Device idle", width, note)
    rows = [(printable(cause), value, "red") for cause, value in idle.causes if value >= 0.01 * idle.idle_s][:8]
    shown = sum(value for _, value, _ in rows)
    if idle.idle_s - shown > 0.0005 * idle.idle_s:
        rows.append(("everything else", idle.idle_s - shown, "dim red"))
    yield _bars(rows, idle.idle_s, width)


def _compilation(report: Report, width: int) -> Iterator[RenderableType]:
    compiled = report.compilation
    share = compiled.total_s / report.run.wall_s if report.run.wall_s > 0 else 0.0
    note = f"{plural(compiled.count, 'program')} in {duration(compiled.total_s)}, {percent(share)} of the run"
    yield title("Compilation", width, note)
    rows = [
        (f"{plural(program.ops, 'operation')}, {plural(program.runs, 'run')}", program.compile_s, "yellow")
        for program in compiled.programs[:3]
    ]
    rest = compiled.total_s - sum(value for _, value, _ in rows)
    if compiled.count > len(rows) and rest > 0.0005 * compiled.total_s:
        rows.append((f"{compiled.count - len(rows):,} more", rest, "dim yellow"))
    yield _bars(rows, compiled.total_s, width)
    if largest := max((one.needs_bytes for one in compiled.programs), default=0):
        yield Text(f"The largest needs {size_text(largest)} of the device's memory while it runs.", "dim")
    if compiled.cached:
        spared = f", which spared {duration(compiled.loaded_s)}" if compiled.loaded_s else ""
        yield Text(f"{compiled.cached:,} of them came from the cache of programs{spared}.", "dim")
    for why, number in compiled.unkept:
        yield Text(f"{number:,} will be compiled in the next run too: {printable(why)}.", "dim")


def _functions(report: Report, name: str, noun: str, done: CompiledFunctions, width: int) -> Iterator[RenderableType]:
    """The section of a compiler that compiles functions."""
    share = done.total_s / report.run.wall_s if report.run.wall_s > 0 else 0.0
    note = f"{plural(done.graphs, noun)} in {duration(done.total_s)}, {percent(share)} of the run"
    yield title(name, width, note if done.count else "compiled before the recording began")
    for function in done.functions[:_FUNCTIONS]:
        place = short(function.place) if function.place.line else function.place.file
        room = width - len(place) - 14
        head = Text.assemble((shorten(printable(function.name) or "?", max(12, room)), "bold"), "  ", (place, "cyan"))
        yield from _beside(head, Text(duration(function.compile_s), "magenta"), width)
        facts = [plural(function.graphs, noun)]
        if function.again:
            facts.append(f"{function.again:,} of them compiled again")
        if function.breaks:
            facts.append(f"broken at {plural(function.breaks, 'line')}")
        facts += [f"{one} runs as plain Python" for one in function.plain]
        yield paragraph("", ", ".join(facts), width)
        if phases := spent(function):
            yield paragraph("", f"of it {phases}", width)
        for one in function.by_design:
            yield paragraph("by design: ", printable(one), width, "")
        for need in (*function.needs, *autotuned(function), *function.runs, *function.cuda_graphs):
            yield paragraph("", printable(need), width)
    if done.count > _FUNCTIONS:
        yield Text(f"and {plural(done.count - _FUNCTIONS, 'more function')}", "dim")
    if done.cuda_graphs.text:
        yield paragraph("CUDA graphs ", printable(done.cuda_graphs.text), width, indent="")
    if done.run_time.text:
        yield paragraph("Run time ", printable(done.run_time.text), width, indent="")
    for charge in done.charges:
        if charge.seconds >= _WORTH_SAYING * report.run.wall_s:
            yield paragraph(f"{duration(charge.seconds)} ", charge.why, width, indent="")


def _torch_tpu(done: TorchTpuStat, width: int) -> Iterator[RenderableType]:
    yield title("TorchTPU", width, put_off(done))
    for one in done.reasons[:_REASONS]:
        name = Text(shorten(printable(reason(one)), max(12, width - 24)), "bold")
        yield from _beside(name, Text(f"cut {times(one.count)}", "magenta"), width)
        yield paragraph("", cut(one), width)
    if len(done.reasons) > _REASONS:
        yield Text(f"and {plural(len(done.reasons) - _REASONS, 'more reason')}", "dim")
    if done.text:
        yield paragraph("", done.text, width, indent="")


def _bars(rows: list[tuple[str, float, str]], whole: float, width: int) -> RenderableType:
    label_width = min(_LABEL, max(12, width - 22))
    bar_width = width - label_width - 20
    if bar_width < 10:
        bar_width = max(4, width - label_width - 16)
    lines = []
    for label, value, style in rows:
        share = value / whole if whole > 0 else 0.0
        if label.startswith("python "):  # of plain Python the lines matter, which come last
            label = "python " + shorten(label[7:], label_width - 8, keep_end=True)
        name, drawn = fit(shorten(label, label_width - 1), label_width), f"{bar(share, bar_width):<{bar_width}}"
        lines.append(Text.assemble(name, (drawn, style), f"{duration(value):>10}", (f"{percent(share):>6}", "dim")))
    return Text("\n").join(lines)


def _scopes(scopes: tuple[ScopeStat, ...], width: int) -> RenderableType:
    rows: list[tuple[str | Text, ...]] = []
    for scope in scopes[:_SCOPES]:
        name = Text(shorten(scope.name, 24), "bold")
        if scope.errors:
            name.append(f" ({scope.errors:,} raised)", "red")
        idle = Text(duration(scope.device_idle_s), "red") if scope.device_idle_s > 0 else Text("-", "dim")
        lengths = map(duration, (scope.total_s, scope.self_s, scope.median_s, scope.max_s))
        rows.append((name, f"{scope.count:,}", *lengths, idle))
    if len(scopes) > _SCOPES:
        rows.append((Text(f"and {len(scopes) - _SCOPES} more", "dim"), *(Text() for _ in range(6))))
    headings = ("", "count", "total", "self", "median", "max", "idle")
    return table(headings, rows, width, ("median", "max", "self", "count"), text="")


def _findings(report: Report, width: int, hidden: int, since: list[str]) -> Iterator[RenderableType]:
    count = len(report.findings) + hidden
    if not count:
        yield from _accounts(report, width)
        yield Text("\n")
        said = without_findings(report)
        yield Text(said, "bold green") if report.observed else paragraph("", said, width, indent="")
        return
    yield title(plural(count, "finding"), width, "the one whose fix gives back most first")
    explain = ["xlaprof", "explain", printable(report.run.path)]
    small = []
    for number, finding in enumerate(report.findings, 1):
        if _is_small(finding, report):
            small.append((number, finding))
            continue
        if number > 1:
            yield Text()
        yield from _finding(number, finding, width, bool(report.steps))
        yield Text(f"   More: {shlex.join([*explain, str(number), *since])}", "dim")
    if small:
        yield Text()
        yield from _small(small, width, shlex.join([*explain, str(small[0][0]), *since]))
    if hidden:
        yield Text(f"\n{hidden} more not shown (--top {count} shows all)", "dim")
    if report.predicted is not None and report.predicted.gain_s >= _WORTH_SAYING * report.run.wall_s:
        yield Text(f"\n{prediction(report.predicted)}", "green")
    yield from _accounts(report, width)


def _accounts(report: Report, width: int) -> Iterator[RenderableType]:
    """What took much of the run, with its reason; torch.compile and JAX have sections of their own."""
    costly = [one for one in report.accounts if one.costly and one.what not in ("torch.compile", "jax")]
    if costly:
        yield title("What took more than a tenth of the run", width)
    for one in costly:
        yield paragraph("", one.text, width, indent="")


def _finding(number: int, finding: Finding, width: int, stepped: bool) -> Iterator[RenderableType]:
    head = Text(f"{number:>2} ", "bold")
    head.append(finding.kind, SEVERITY_STYLE[finding.severity])
    head.append(f"  {finding.severity}", "dim")
    if finding.confidence != "high":
        head.append(f"  {finding.confidence} confidence", "yellow")
    cost = f"costs {duration(finding.cost_s)}" if finding.cost_s > 0 else ""
    right = spaced(many(finding), cost, per_step(finding.cost_per_step_s) * stepped)
    if finding.operation:
        room = width - head.cell_len - len(right) - 4
        head.append(f"  {shorten(finding.operation, min(32, max(12, room)))}", "dim")
    yield from _beside(head, Text(right, "bold"), width)
    right = spaced(printable(finding.rhythm), gain(finding, stepped))
    beside = width - len(right) - 2 >= 38
    yield from _beside(where(finding.place, width - len(right) - 2 if beside else width), Text(right, "green"), width)
    code = Text.assemble(("   | ", "dim"), (shorten(finding.place.code, width - 5 - len(finding.id) - 2), "bold"))
    yield from _beside(code if finding.place.code else Text("  "), Text(finding.id, "dim"), width)
    yield from under(finding.place, width)
    yield paragraph("", finding.cause, width)
    yield from parts_of(finding, width)
    yield paragraph("Fix: ", finding.advice, width, "bold green")


def _is_small(finding: Finding, report: Report) -> bool:
    """Whether nobody could measure what it costs: neither in this run, nor in a longer one of the same steps."""
    step = report.steps[0].median_s if report.steps else 0.0
    return finding.severity == SEVERITIES[-1] and finding.cost_per_step_s <= FELT * step


def _small(found: Iterable[tuple[int, Finding]], width: int, explain: str) -> Iterator[Text]:
    """A line for each of the findings that cost too little to be worth more of a reader's time."""
    yield Text(f"Small, each less than {percent(NOTICED)} of the time of the steps:", "dim")
    for number, finding in found:
        head = Text.assemble((f"{number:>2} ", "bold"), f"{finding.kind}  ", (short(finding.place), "cyan"))
        if finding.place.acting.code:
            head.append(f" | {finding.place.acting.code}")
        cost = f"{many(finding)}   {duration(finding.cost_s)}"
        head.truncate(width - len(cost) - 2, overflow="ellipsis")
        yield from _beside(head, Text(cost, "bold"), width)
    yield Text(f"   More: {explain}", "dim")


def _beside(left: Text, right: Text, width: int) -> Iterator[Text]:
    """Both on one line, ``right`` at its end; on two where that is too narrow."""
    gap = width - left.cell_len - right.cell_len
    if gap >= 2:
        left.append(" " * gap if right.cell_len else "")
        left.append_text(right)
        yield left
        return
    yield left
    if right.cell_len:
        right.truncate(max(1, width - 3), overflow="ellipsis")
        yield Text("   ") + right
