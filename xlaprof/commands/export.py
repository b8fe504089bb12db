"""Write a log in another tool's format, for TensorBoard and XProf

  xlaprof export run.log --to tensorboard -o logdir
  tensorboard --logdir logdir --host 127.0.0.1

tensorboard  a profile for XProf's Profile tab (executions, steps, host scopes and activities with their lines, idle
             gaps) and a curve per figure of a step. A new run of the log directory, named after the log and the
             time it began.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from xlaprof.errors import UserError
from xlaprof.events import Event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``xlaprof export``."""
    parser.add_argument("log", type=Path, help="a run.log")
    parser.add_argument("--to", required=True, metavar="FORMAT", help="the format: tensorboard")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="PATH", help="where to write")
    parser.add_argument("--force", action="store_true", help="replace the run of an earlier export of this log")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(args: argparse.Namespace) -> int:
    """Write the export, say where it is and how to look at it."""
    # Imported here: `xlaprof --help` needs none of it.
    import msgspec

    from xlaprof.commands._loading import load
    from xlaprof.export import formats
    from xlaprof.export.written import Job

    known = formats.available()
    if args.to not in known:
        raise UserError(f"unknown format '{args.to}': --to takes {', '.join(known)}")
    export = formats.load(args.to)
    source = load(args.log)
    written = export(
        Job(source=args.log, events=_progress(source, sys.stderr.isatty()), out=args.out, force=args.force)
    )
    written = msgspec.structs.replace(written, notes=(*source.notes, *written.notes))
    if args.json:
        print(msgspec.json.encode(written).decode())
        return 0
    for note in written.notes:
        print(f"xlaprof: {note}", file=sys.stderr)
    print(f"wrote {written.steps} steps and {written.executions} executions of {args.log}:")
    for file in written.files:
        print(f"  {file}")
    print(f"look at it with\n  {written.hint}")
    return 0


def _progress(events: Iterable[Event], show: bool) -> Iterator[Event]:
    """``events``, counted on stderr while they pass, if a person is watching and it takes more than a second."""
    if not show:
        yield from events
        return
    shown = time.monotonic()
    count = 0
    for count, event in enumerate(events, 1):
        yield event
        if count % 8192 == 0 and time.monotonic() - shown > 0.5:
            shown = time.monotonic()
            print(f"\rread {count:,} events", end="", file=sys.stderr, flush=True)
    if count:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
