"""What the report says, for TensorBoard: a page of text, one for each finding, and lines for XProf's overview.

The sentences are the report's own. Pages are Markdown, as TensorBoard's Text tab shows it; what the program named is
shown as it is, never as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xlaprof.analysis.model import Finding, Report, StepStats
from xlaprof.analysis.outcome import without_findings
from xlaprof.pages.words import gain, prediction, worth
from xlaprof.text.parts import mean_parts
from xlaprof.text.quantities import duration, percent, plural
from xlaprof.text.strings import path_line, printable

_ROOM = 800  # characters of findings on XProf's overview
_CAUSES = 6  # of idle time, there
_MARKUP = re.compile(r"[^\w\s.,:;/%+=@?'-]|(?<!\w)_|_(?!\w)", re.ASCII)


def pages(report: Report) -> Iterator[tuple[str, str]]:
    """(tag, Markdown) of the run as a whole, then of each finding as the report ranks them."""
    yield "report", "\n".join(_run(report))
    for number, finding in enumerate(report.findings, 1):
        yield f"findings/{number} {finding.kind}", "\n".join(_finding(report, finding))


def lines(report: Report, device: str, notes: Sequence[str]) -> tuple[str, str]:
    """What XProf shows as warnings on its overview, in low boxes one below the other, in any order: so they are two."""
    second = " ".join((*_idle(report), device, *map(_sentence, notes)))
    return f"xlaprof 1/2: {printable(_findings(report))}", f"xlaprof 2/2: {printable(second)}"


def _findings(report: Report) -> str:
    """As many findings as the box has room for, and at least one."""
    if report.clean:
        return without_findings(report)
    found: list[str] = []
    for number, finding in enumerate(report.findings, 1):
        where = path_line(finding.place.file, finding.place.line) or "an unknown line"
        price = [f"costs {duration(finding.cost_s)}" * (finding.cost_s > 0), gain(finding, False)]
        head = ", ".join(filter(None, (f"{finding.kind} at {where}", *price)))
        told = f"{number}. {head}. {finding.cause} Fix: {finding.advice}"
        if found and sum(map(len, (*found, told))) > _ROOM:
            break
        found.append(told)
    return f"{plural(len(report.findings), 'finding')}, explained in the Text tab. {' '.join(found)}"


def _idle(report: Report) -> Iterator[str]:
    idle = report.idle
    if idle.idle_s <= 0:
        return
    causes = [f"{name} {duration(s)} ({percent(s / idle.idle_s)})" for name, s in idle.causes[:_CAUSES]]
    more = sum(s for _, s in idle.causes[_CAUSES:])
    causes += [f"everything else {duration(more)}"] * (more > 0)
    yield f"The device was idle {percent(idle.idle_ratio)} of {duration(idle.window_s)}: {', '.join(causes)}."


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _run(report: Report) -> Iterator[str]:
    yield f"**{plain(report.run.path)}**, {duration(report.run.wall_s)} recorded"
    yield ""
    if report.clean:
        yield plain(without_findings(report))
    else:
        found = plural(len(report.findings), "finding")
        yield f"{found}, the one whose fix gives back most first: see *findings* below."
        if report.predicted is not None:
            yield plain(prediction(report.predicted))
    for stat in report.steps:
        yield from ("", f"**Steps** {plain(stat.name)}", "")
        rows = [("steps", str(stat.count)), ("first", duration(stat.first_s)), ("median", duration(stat.median_s))]
        rows += [("95 % below", duration(stat.p95_s)), ("longest", duration(stat.max_s))]
        yield from _table(("", ""), rows)
        yield from _split(stat)
    if report.idle.idle_s > 0:
        idle = report.idle
        yield from ("", f"**Device idle** {percent(idle.idle_ratio)} of {duration(idle.window_s)}", "")
        yield from _table(
            ("cause", "time", "share"), [(n, duration(s), percent(s / idle.idle_s)) for n, s in idle.causes]
        )
    if report.accounts:
        yield from ("", "**Where the run went**", "")
        yield from (f"* {plain(account.text)}" for account in report.accounts)


def _split(stat: StepStats) -> Iterator[str]:
    whole, steps = stat.split.total_s, max(1, stat.count - 1)
    if whole <= 0:
        return
    rows = [(name, duration(s), percent(s * steps / whole)) for name, s in mean_parts(stat.split, steps)]
    busy = stat.split.device_busy_s
    without = ", without the first" if stat.count > 1 else ""
    yield from ("", f"Where a step's time goes, mean of {steps:,}{without}: {duration(whole / steps)}", "")
    yield from _table(
        ("host", "time", "share"), [*rows, ("(device busy)", duration(busy / steps), percent(busy / whole))]
    )


def _finding(report: Report, finding: Finding) -> Iterator[str]:
    operation = f" {plain(finding.operation)}" if finding.operation else ""
    yield f"**{finding.kind}**{operation}, {finding.severity}, {finding.id}"
    place = finding.place
    if place.line:
        yield from ("", plain(f"{path_line(place.file, place.line)} in {place.func or 'the module'}"), "")
        yield from _code(place.code)
    yield from ("", plain(finding.cause), "")
    yield f"**Fix:** {plain(finding.advice)}"
    if finding.remedy:
        yield from ("", *_code(finding.remedy))
    yield ""
    for label, text in worth(finding, report):
        yield f"* {label}{plain(text)}"
    for fact in finding.evidence:
        yield f"* {plain(fact)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(plain, row))} |"


def _code(text: str) -> Iterator[str]:
    """A block that ends where its indentation ends, whatever it holds."""
    for line in text.expandtabs(4).split("\n"):
        yield f"    {printable(line)}"


def plain(text: str) -> str:
    """``text`` on one line, without a character that means anything to Markdown or HTML."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", printable(text))
