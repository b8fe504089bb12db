"""Say what went wrong in a recorded run: on which line, at what cost, and what to change.

    xlaprof report run.log
    xlaprof report run.log --since-step 10 --top 5
    xlaprof report run.log --json | jq .findings
    xlaprof report run.log --html report.html
    xlaprof report logs/

Everything recorded counts, unless --since-step leaves out what came before that step, such as warm-up. --fail-on makes
the exit code 1 when there is a finding of at least that severity, for CI, and 2 when there is none but the recording
says that events were dropped. --html writes all of it, with timeline, steps and graphs, to one
file for a browser, which loads nothing: attach it to a ticket. Of a folder with the logs of all ranks of a program it
prints the ranks beside each other, the one that the others wait for, and what was found on which.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

from msgspec.structs import replace

from xlaprof.analysis.model import SEVERITIES, Report
from xlaprof.collection import no_collection
from xlaprof.commands._loading import natural, prepare
from xlaprof.errors import UserError
from xlaprof.reports import fold, reading
from xlaprof.text.output import write_json
from xlaprof.text.quantities import plural, size_text
from xlaprof.text.strings import printable

FOUND = 1  # exit code under --fail-on
_PAGE = 10  # findings on the page without --top


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", help="a recording: run.log, or a folder of ranks' logs")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON (docs/report-json.md)")
    form.add_argument("--html", metavar="FILE", help="write a page for a browser to FILE (docs/html-report.md)")
    parser.add_argument("--force", action="store_true", help="with --html: replace a file that is no such page")
    parser.add_argument("--top", type=natural, metavar="N", help="show at most N findings (default: 10; all in JSON)")
    parser.add_argument("--since-step", type=natural, metavar="N", help="leave out everything before step N")
    parser.add_argument(
        "--fail-on",
        choices=["low", "medium", "high"],
        metavar="SEVERITY",
        help="exit with 1 if there is a finding of this severity (low, medium, high) or worse",
    )


@no_collection()
def run(args: argparse.Namespace) -> int:
    if _has_ranks(args.log):
        return _report_ranks(args)
    prepare(args.log)
    if args.html is not None:
        return _verdict(_write_page(args), args)
    folded, notes = fold(args.log, args.since_step)
    report = folded.report(args.log, notes)
    most = args.top if args.top is not None or args.json else _PAGE
    shown = report if most is None else replace(report, findings=report.findings[:most])
    hidden = len(report.findings) - len(shown.findings)
    if args.json:
        from xlaprof.pages.json import text, to_json

        write_json(text(to_json(shown, hidden)))
    else:
        from xlaprof.pages.page import show_page
        from xlaprof.pages.terminal import render

        show_page(partial(render, shown, hidden=hidden, since_step=args.since_step))
    return _verdict(report, args)


def _has_ranks(path: str) -> bool:
    """Whether ``path`` is a folder of logs, and not one that is itself a recording."""
    from xlaprof.log import LogError
    from xlaprof.sources import files

    if not os.path.isdir(path):
        return False
    try:
        files.recognise(path)
    except LogError:
        return True
    return False


def _report_ranks(args: argparse.Namespace) -> int:
    from contextlib import closing

    from xlaprof.analysis.views.ranks import shared
    from xlaprof.commands._loading import follow
    from xlaprof.pages.ranks import RankPage, render, to_json
    from xlaprof.tui.fleet import FleetFeed

    for option, value in (("--html", args.html), ("--since-step", args.since_step)):
        if value is not None:
            raise UserError(f"{option} is for one recording: name one of the logs in {args.log}")
    with closing(FleetFeed(args.log, follow)) as feed:
        feed.open(wait=False)
        fleet = feed.read_all()
    pages = tuple(RankPage(one.status.word, one.report) for one in fleet.states if one.report is not None)
    reports = [one.report for one in pages]
    found = shared(reports)
    most = args.top if args.top is not None or args.json else _PAGE
    shown = found if most is None else found[:most]
    if args.json:
        from xlaprof.pages.json import text

        write_json(text(to_json(args.log, fleet.ranks, pages, shown, len(found) - len(shown))))
    else:
        from xlaprof.pages.page import show_page

        hidden = len(found) - len(shown)
        show_page(partial(render, args.log, fleet.ranks, pages, shown, fleet.others, hidden=hidden))
    return max((_verdict(one, args) for one in reports), default=0)


def _write_page(args: argparse.Namespace) -> Report:
    from xlaprof.pages.html.write import write as write_page
    from xlaprof.text.output import write

    if args.top is not None:
        raise UserError(f"--top {args.top} is for what is printed: the page of --html has all findings")
    since: int | None = args.since_step
    report = write_page(args.log, args.html, reading(args.log), since_step=since, force=args.force).report
    found = plural(len(report.findings), "finding")
    write(f"wrote {printable(args.html)} ({size_text(os.path.getsize(args.html))}): {found}\n")
    return report


def _verdict(report: Report, args: argparse.Namespace) -> int:
    if args.fail_on is not None:
        counted = SEVERITIES[: SEVERITIES.index(args.fail_on) + 1]
        if any(finding.severity in counted for finding in report.findings):
            return FOUND
        if report.run.lacks:
            lacks = f"{report.run.path} lacks {plural(report.run.lacks, 'event')} that the recording dropped"
            raise UserError(
                f"{lacks}, so it may hide a finding: record again, or let it pass with "
                f"xlaprof check --fail-on {args.fail_on} --allow-dropped"
            )
    return 0
