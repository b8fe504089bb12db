"""Write a recording in the format of another tool: for TensorBoard and XProf, or a browser.

  xlaprof export run.log --to tensorboard -o logdir
  tensorboard --logdir logdir --host 127.0.0.1
  xlaprof export run.log --to html -o report.html

tensorboard  a profile for XProf's Profile tab (executions, steps, host scopes and activities with their lines, idle
             gaps with their blame), a curve for each figure of a step, and the findings as text. It is a new run in the
             log directory, named after the log and the time at which the recording began.
html         the page of xlaprof report --html: one file for a browser, which loads nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from xlaprof.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from xlaprof.export import formats

    parser.add_argument("log", type=Path, help="a recording: run.log")
    parser.add_argument("--to", required=True, metavar="FORMAT", help=f"the format: {', '.join(formats.available())}")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="PATH", help="where to write")
    parser.add_argument("--force", action="store_true", help="replace the run of an earlier export of this log")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(args: argparse.Namespace) -> int:
    from contextlib import closing

    import msgspec

    from xlaprof.export import formats
    from xlaprof.export.written import Job
    from xlaprof.pages.json import text
    from xlaprof.reports import reading, takes_long
    from xlaprof.text.output import progress, say, write, write_json
    from xlaprof.text.quantities import plural
    from xlaprof.text.strings import printable

    known = formats.available()
    if args.to not in known:
        raise UserError(f"unknown format '{args.to}': --to takes {', '.join(known)}")
    export = formats.load(args.to)
    read = reading(str(args.log))
    source, events = read("reading")
    job = Job(source=args.log, events=events, out=args.out, force=args.force, read=read)
    if takes_long(args.log):
        job = msgspec.structs.replace(job, tell=progress)
    with closing(source):
        written = export(job)
    if not written.whole:  # else this reading has not come to the end of the recording, of which its notes tell
        written = msgspec.structs.replace(written, notes=(*source.notes, *written.notes))
    if args.json:
        write_json(text(msgspec.to_builtins(written)))
        return 0
    for note in written.notes:
        say(note)
    holds = [plural(n, noun) for n, noun in ((written.steps, "step"), (written.executions, "execution")) if n]
    listed = "".join(f"  {printable(file)}\n" for file in written.files)
    write(f"wrote {' and '.join(holds) or plural(written.events, 'event')} of {printable(str(args.log))}:\n{listed}")
    write(f"look at it with\n  {printable(written.hint)}\n")
    return 0
