"""Explore a recording in the terminal.

    xlaprof tui run.log
    xlaprof tui logs/

The screen of 'xlaprof live' over anything that 'xlaprof report' reads: findings with their code, steps, graphs, idle
time, transfers; of a folder, all ranks of a program. Keys: q quits, ? explains the others.
"""

from __future__ import annotations

import argparse
import os


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", help="a recording: run.log, or a folder of them")


def run(args: argparse.Namespace) -> int:
    from xlaprof.commands._looking import Whole, look, look_at_all
    from xlaprof.sources import files

    if os.path.isdir(args.log):
        return look_at_all(args.log, wait=False)
    return look(args.log, Whole(files.read(args.log)))
