"""Follow a recording in the terminal while it grows.

    xlaprof live run.log
    xlaprof live logs/

Shows the state of the program, its step times, where the time goes, and the findings of 'xlaprof report' as they
appear, with their code; of a folder, all ranks of the program that records there, and which one the others wait for.
Start it before or after the program, from another terminal; it does not affect the program. Keys: q quits, ? explains
the others.
"""

from __future__ import annotations

import argparse
import os

from xlaprof.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log", metavar="LOG", help="the recording to follow, as in 'xlaprof run -o LOG ...', or a folder"
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="fail if LOG does not exist, or the folder has none (default: wait)"
    )


def run(args: argparse.Namespace) -> int:
    from xlaprof.commands._loading import follow
    from xlaprof.commands._looking import look, look_at_all

    if os.path.isdir(args.log):
        return look_at_all(args.log, wait=not args.no_wait)
    _check(args.log, wait=not args.no_wait)
    return look(args.log, follow(args.log))


def _check(log: str, wait: bool) -> None:
    """Raise :class:`UserError` for a log that does not exist and never will, or that ``wait`` is not given for."""
    if os.path.lexists(log) and not os.path.exists(log):
        raise UserError(f"{log} is a link to nothing: {os.readlink(log)} does not exist")
    if os.path.exists(log):
        return
    folder = os.path.dirname(log) or "."
    if not os.path.isdir(folder):
        raise UserError(f"{log} does not exist, and neither does its directory {folder}")
    if not wait:
        raise UserError(f"{log} does not exist: record into it first (xlaprof run -o {log} script.py)")
