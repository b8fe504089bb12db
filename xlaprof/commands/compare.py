"""Compare two recorded runs of a program: findings gone and new, step time with confidence.

    xlaprof compare baseline.log candidate.log
    xlaprof compare baseline.log candidate.log --tolerance 5%
    xlaprof compare baseline.log candidate.log --json | jq .new

Exit code 0 if the candidate is as good or better, 1 if it is worse (a new finding, a finding of higher severity, or
steps that are slower by more than the tolerance, with 95 % confidence), 2 if the two cannot be compared: different
devices, number of processes or programs, no steps in common, events dropped. --anyway compares those too. See
docs/compare.md.
"""

from __future__ import annotations

import argparse
from functools import partial

from xlaprof.analysis.gates.compare import TOLERANCE, compare, obstacles
from xlaprof.analysis.gates.limits import share
from xlaprof.collection import no_collection
from xlaprof.commands._loading import natural, prepare
from xlaprof.errors import UserError
from xlaprof.reports import fold
from xlaprof.text.output import write_json

WORSE = 1  # exit code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("baseline", help="a recording: run.log")
    parser.add_argument("candidate", help="the recording that is compared with it")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/compare.md)")
    parser.add_argument("--since-step", type=natural, metavar="N", help="leave out everything before step N of both")
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        metavar="SHARE",
        default=TOLERANCE,
        help=f"a smaller difference of the step time does not count (default: {TOLERANCE:.0%})".replace("%", "%%"),
    )
    parser.add_argument("--anyway", action="store_true", help="compare recordings that should not be compared")


@no_collection()
def run(args: argparse.Namespace) -> int:
    prepare(args.baseline, args.candidate)
    before, notes_before = fold(args.baseline, args.since_step)
    after, notes_after = fold(args.candidate, args.since_step)
    reports = before.report(args.baseline, notes_before), after.report(args.candidate, notes_after)
    why = obstacles(*reports)
    if why and not args.anyway:
        raise UserError(
            f"cannot compare {args.baseline} and {args.candidate}: {'; '.join(why)} (--anyway does all the same)"
        )
    comparison = compare(before, after, reports, args.tolerance, why)
    if args.json:
        from xlaprof.pages.json import comparison_to_json, text

        write_json(text(comparison_to_json(comparison)))
    else:
        from xlaprof.pages.compare import render
        from xlaprof.pages.page import show_page

        show_page(partial(render, comparison))
    return WORSE if comparison.worse else 0


def _tolerance(text: str) -> float:
    try:
        return share(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a share like 5% or 0.05") from None
