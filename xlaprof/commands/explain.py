"""Explain one finding of a recorded run in depth, or a kind of finding.

    xlaprof explain run.log 2
    xlaprof explain run.log 3803bc14f5b2 --json
    xlaprof explain run.log recompile
    xlaprof explain recompile

FINDING is its number in xlaprof report, which prints the command, or its id; the beginning of an id is enough where it
is no number of a finding and only one id begins so. With a kind instead every finding of that kind is explained;
without a log, what the kind means, how it looks and how to fix it. The code around the line is read from the file, if
the line still is what it was when it was recorded.
"""

from __future__ import annotations

import argparse
import os
import re
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xlaprof.collection import no_collection
from xlaprof.commands._loading import natural
from xlaprof.errors import UserError
from xlaprof.reports import fold
from xlaprof.text.output import write, write_json
from xlaprof.text.strings import did_you_mean

if TYPE_CHECKING:
    from xlaprof.analysis.model import Finding, Report
    from xlaprof.analysis.occurrences import Occurrences
    from xlaprof.analysis.run import Run
    from xlaprof.pages.source import Source

#: docs/findings of the repository, which goes with the package
PAGES = Path(__file__).parents[1] / "findings_pages"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [-h] [--json] [--since-step N] [LOG] FINDING"
    parser.add_argument("words", metavar="LOG", nargs="+", help="the recording: run.log; not needed for a kind alone")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/report-json.md)")
    parser.add_argument("--since-step", type=natural, metavar="N", help="leave out everything before step N")


@no_collection()
def run(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise UserError(f"explain takes a recording and a finding, not {' '.join(args.words)} (see explain --help)")
    if len(args.words) == 1:
        _show_page(args.words[0], args.json)
        return 0
    log, wanted = _log_and_finding(*args.words)
    folded, notes = fold(log, args.since_step)
    report = folded.report(log, notes)
    chosen = choose(report, wanted)
    explained = [(finding, *_details(finding, folded, log)) for finding in chosen]
    if args.json:
        from xlaprof.pages.json import explanation_to_json, text

        findings = [explanation_to_json(*one) for one in explained]
        write_json(text({"schema": 1, "findings": findings}))
        return 0
    from xlaprof.pages.explain import render
    from xlaprof.pages.page import show_page

    for number, (finding, happened, mine, others) in enumerate(explained):
        if number:
            write("\n\n")
        show_page(partial(render, finding, report, happened, (mine, others)))
    return 0


def _log_and_finding(first: str, second: str) -> tuple[str, str]:
    """A recording and a finding, in whichever order they were given."""
    if not os.path.exists(first) and (os.path.exists(second) or re.fullmatch("[0-9a-fA-F]{1,12}", first)):
        return second, first
    return first, second


def choose(report: Report, wanted: str) -> list[Finding]:
    """The finding with the number ``wanted``, whose id it begins, or those of that kind. Raises :class:`UserError`."""
    if wanted.isdecimal() and 1 <= int(wanted) <= len(report.findings):
        return [report.findings[int(wanted) - 1]]
    exact = [finding for finding in report.findings if wanted in (finding.id, finding.kind)]
    if exact:
        return exact
    if not report.findings:
        raise UserError(f"there are no findings in {report.run.path}, so there is nothing to explain")
    numbered = list(enumerate(report.findings, 1))
    begin = [(number, one) for number, one in numbered if wanted and one.id.startswith(wanted.lower())]
    if len(begin) == 1:
        return [begin[0][1]]
    ids = "; ".join(f"{number}: {one.id} ({_short(one)})" for number, one in (begin or numbered)[:20])
    if begin:
        raise UserError(f"'{wanted}' is the beginning of {len(begin)} ids, give more of it: {ids}")
    raise UserError(f"no finding '{wanted}' in {report.run.path}; there are: {ids}")


def pages() -> dict[str, Path]:
    """The pages on kinds of findings, by kind."""
    from xlaprof.analysis.findings import names

    return {name: PAGES / f"{name}.md" for name in names()}


def _details(finding: Finding, folded: Run, path: str) -> tuple[Occurrences, Source, tuple[Source, ...]]:
    from xlaprof.analysis.occurrences import occurrences
    from xlaprof.pages.source import source
    from xlaprof.sources import files

    with closing(files.read(path)) as reader:
        happened = occurrences(reader.batches(), folded, finding)
    cwd = folded.header.cwd if folded.header is not None else ""
    return happened, source(finding.place, cwd), tuple(source(place, cwd, 1) for place in finding.also)


def _show_page(wanted: str, as_json: bool) -> None:
    known = pages()
    if os.path.isfile(wanted):
        raise UserError(f"which finding of {wanted}? Name its number in the report: xlaprof explain {wanted} 1")
    page = known.get(wanted.replace("-", "_"))
    if page is None:
        hint = did_you_mean(wanted, known)
        raise UserError(
            f"'{wanted}' is no kind of finding: {hint}{' ' if hint else ''}There are {', '.join(known)}. "
            f"Of a finding name the log too: xlaprof explain run.log {wanted}"
        )
    text = page.read_text("utf-8")
    if as_json:
        from xlaprof.pages.json import text as as_text

        write_json(as_text({"schema": 1, "kind": page.stem, "page": text}))
        return
    write(text)


def _short(finding: Finding) -> str:
    from xlaprof.analysis.places import short

    return f"{finding.kind} {short(finding.place) if finding.place.line else 'on no known line'}"
