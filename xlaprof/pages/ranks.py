"""All ranks of a program beside each other: where a step's time goes, which one is late, what was found on which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from xlaprof.analysis.model import Report
from xlaprof.analysis.views.compiled_apart import Apart, numbers
from xlaprof.analysis.views.ranks import Divergence, Ranks, Shared, Slow
from xlaprof.pages.json import SCHEMA, finding_to_json
from xlaprof.pages.json import to_json as report_to_json
from xlaprof.pages.page import SEVERITY_STYLE, paragraph, table, title, where
from xlaprof.text.cells import shorten
from xlaprof.text.quantities import duration, percent, plural
from xlaprof.text.strings import printable

_NAMED = 8  # ranks in a list
_DIVERGENCES = 12


class RankPage(msgspec.Struct, frozen=True):
    """A rank as it stands: "finished", "lost"...; and its report."""

    state: str
    report: Report


def render(
    folder: str,
    ranks: Ranks,
    pages: Sequence[RankPage],
    found: Sequence[Shared],
    others: int,
    width: int,
    hidden: int = 0,
) -> RenderableType:
    """The page, ``width`` columns wide. ``others``: programs in the folder left out; ``hidden``: findings left out."""
    head = Text.assemble(("xlaprof", "bold green"), "  ", (shorten(folder, width - 9), "bold"))
    if pages and pages[0].report.run.argv:
        head.append(f"\n{shorten(' '.join(pages[0].report.run.argv), width)}")
    head.append(f"\n{len(pages):,} of {plural(ranks.world, 'rank')}", "dim")
    if ranks.missing:
        head.append(f"\n! no log of {numbers(ranks.missing)}", "yellow")
    if others:
        head.append(f"\n! {plural(others, 'earlier program')} in the folder left out", "yellow")
    parts: list[RenderableType] = [head, *_table(ranks, pages, width), *_slowest(ranks, width)]
    parts += [paragraph("! ", one.told, width, "bold yellow", "") for one in ranks.unended]
    parts += _apart(ranks.functions, width)
    parts += _diverging(ranks.divergences, width)
    parts += _findings(found, [page.report.run.rank for page in pages], width, hidden)
    example = shorten(pages[0].report.run.path, 60, keep_end=True) if pages else folder
    parts.append(Text(f"\nxlaprof report {example} tells all of one rank.", "dim"))
    return Group(*parts)


def _table(ranks: Ranks, pages: Sequence[RankPage], width: int) -> Iterator[RenderableType]:
    note = f"a step on average, in steps {ranks.first:,} to {ranks.last:,}" if ranks.first >= 0 else ""
    yield title("Ranks", width, note)
    stats = {one.path: one for one in ranks.ranks}
    rows: list[tuple[str | Text, ...]] = []
    for page in pages:
        run, stat = page.report.run, stats.get(page.report.run.path)
        slow = ranks.slow is not None and ranks.slow.path == run.path
        times = ["-"] * 4
        if stat is not None and stat.compared:
            times = [duration(s) for s in (stat.cycle_s, stat.own_s, stat.wait_s, stat.busy_s)]
        steps = f"{sum(one.count for one in page.report.steps):,}"
        process = f"{shorten(run.host, 20)} {run.pid}"
        mark = Text(f"{run.rank}", "bold yellow" if slow else "")
        rows.append((mark, page.state, steps, *times, f"{len(page.report.findings):,}", process))
    headings = ("rank", "state", "steps", "a step", "itself", "waiting", "device", "findings", "process")
    yield table(headings, rows, width, drop=("process", "device", "steps"))


def _slowest(ranks: Ranks, width: int) -> Iterator[RenderableType]:
    compared = sum(one.compared for one in ranks.ranks)
    if ranks.slow is None:
        if compared > 1:
            yield Text()
            yield paragraph("", f"No rank is later than the others: {compared:,} compared.", width, "green", "")
        return
    yield title("The slowest", width)
    yield paragraph("", late(ranks.slow), width, "bold yellow", "")
    for name, here, others in ranks.slow.parts:
        yield Text(f"   {printable(name):<22} {duration(here)}, {duration(others)} on the others")
    if (finding := ranks.slow.finding) is not None:
        beyond = (
            f"It has the finding {finding.kind}, which costs {duration(ranks.slow.beyond_s)} more than on the others:"
        )
        yield paragraph("", beyond, width, "", "")
        yield where(finding.place, width)
        yield paragraph("", finding.advice, width, "")


def late(slow: Slow) -> str:
    """The sentence on the slowest rank."""
    how = "which wait for it" if slow.waited_for else "which go on without it"
    return (
        f"Rank {slow.rank} is the slowest: {duration(slow.lag_s)} later in each step than the others, {how} "
        f"({percent(slow.share)})."
    )


def _apart(found: Sequence[Apart], width: int) -> Iterator[RenderableType]:
    if not found:
        return
    yield title("Functions that torch.compile did not make alike on all ranks", width)
    for one in found[:_DIVERGENCES]:
        yield Text(shorten(printable(one.name), width), "bold")
        if one.place.line:
            yield where(one.place, width)
        for said in one.told:
            yield paragraph("", said, width, "")
    if len(found) > _DIVERGENCES:
        yield Text(f"and {len(found) - _DIVERGENCES:,} more", "dim")


def _diverging(found: Sequence[Divergence], width: int) -> Iterator[RenderableType]:
    if not found:
        return
    yield title("Programs that only some ranks compiled", width)
    for one in found[:_DIVERGENCES]:
        step = f"in step {one.step:,}" if one.step >= 0 else "before the first step"
        said = f"{one.what}: {numbers(one.ranks)}, {step}, {duration(one.compile_s)}; not {numbers(one.others)}"
        yield paragraph("", said, width, "", "")
        if one.place.line:
            yield where(one.place, width)
        if one.change:
            yield paragraph("", one.change, width, "")
    if len(found) > _DIVERGENCES:
        yield Text(f"and {len(found) - _DIVERGENCES:,} more", "dim")


def _findings(found: Sequence[Shared], all_ranks: Sequence[int], width: int, hidden: int) -> Iterator[RenderableType]:
    count = len(found) + hidden
    yield title("Findings", width, f"{count:,}, the largest gain on a rank first" if count else "none on any rank")
    for number, one in enumerate(found, 1):
        finding = one.finding
        ranks = [rank for rank, _, _ in one.by]
        on = "all ranks" if len(ranks) == len(all_ranks) > 1 else numbers(ranks)
        head = Text.assemble(
            (f"{number} {finding.kind}", f"bold {SEVERITY_STYLE[finding.severity].split()[-1]}"),
            (f"  {finding.severity}", SEVERITY_STYLE[finding.severity]),
            f"  on {on}  ",
            (finding.id, "dim"),
        )
        yield Text()
        yield head
        yield where(finding.place, width)
        if finding.place.code:
            yield Text(f"   {shorten(finding.place.code, width - 3)}")
        yield paragraph("", costs(one), width, "")
        yield paragraph("Cause: ", finding.cause, width, "bold")
        yield paragraph("Fix: ", finding.advice, width, "bold green")
    if hidden:
        yield Text(f"\n{plural(hidden, 'more finding')}: --top {count} shows all", "dim")


def costs(one: Shared) -> str:
    """ "costs 1.2 s on rank 2, 0.8 s on rank 0 and 2 more" """
    by = sorted(one.by, key=lambda row: (-row[1], row[0]))
    shown = ", ".join(f"{duration(cost)} on rank {rank}" for rank, cost, _ in by[:_NAMED])
    more = f" and less on {plural(len(by) - _NAMED, 'other rank')}" if len(by) > _NAMED else ""
    gain = f"; a fix gives back {duration(one.finding.gain_s)} on rank {one.rank}" if one.finding.gain_s > 0 else ""
    return f"costs {shown}{more}{gain}"


def to_json(
    folder: str, ranks: Ranks, pages: Sequence[RankPage], found: Sequence[Shared], hidden: int
) -> dict[str, Any]:
    """The same as ``--json`` prints it: docs/report-json.md."""
    stats = {one.path: one for one in ranks.ranks}
    rows = []
    for page in pages:
        stat = to_builtins(stats[page.report.run.path])
        stat["parts"] = [{"part": name, "seconds": seconds} for name, seconds in stats[page.report.run.path].parts]
        rows.append({**stat, "state": page.state, "report": report_to_json(page.report)})
    slow = None
    if ranks.slow is not None:
        parts = [{"part": name, "seconds": here, "others_s": others} for name, here, others in ranks.slow.parts]
        finding = finding_to_json(ranks.slow.finding) if ranks.slow.finding is not None else None
        slow = {**to_builtins(replace(ranks.slow, finding=None)),
                "parts": parts, "finding": finding}  # fmt: skip
    return {
        "schema": SCHEMA,
        "folder": folder,
        "world": ranks.world,
        "missing": list(ranks.missing),
        "first": ranks.first,
        "last": ranks.last,
        "ranks": rows,
        "slow": slow,
        "divergences": to_builtins(ranks.divergences),
        "unended": [{**to_builtins(one), "told": one.told} for one in ranks.unended],
        "functions": [{**to_builtins(one), "told": one.told} for one in ranks.functions],
        "findings": [
            {
                **finding_to_json(one.finding),
                "rank": one.rank,
                "by": [{"rank": rank, "cost_s": cost, "gain_s": gain} for rank, cost, gain in one.by],
            }
            for one in found
        ],
        "hidden": hidden,
        "clean": not found and not hidden,
    }
