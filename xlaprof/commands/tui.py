"""Explore a recording in the terminal.

    xlaprof tui run.log

The screen of 'xlaprof live' over anything that 'xlaprof report' reads: findings with their code, steps, graphs, idle
time, transfers. Keys: q quits, ? explains the others.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", help="a recording: run.log")


def run(args: argparse.Namespace) -> int:
    from xlaprof.commands._looking import Whole, look
    from xlaprof.sources import files

    return look(args.log, lambda: Whole(files.read(args.log)))
