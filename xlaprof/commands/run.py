"""Run a script with recording on, then print its report.

    xlaprof run train.py --epochs 3
    xlaprof run --live train.py --epochs 3
    xlaprof run -o run.log -m package.train --epochs 3
    torchrun --nproc-per-node 4 -m xlaprof run train.py

Scripts written for PyTorch/XLA run as they are: where torch_xla is not installed, xlaprof's implementation takes its
place (docs/torch-xla-scripts.md). While the script runs, standard error has a line for what is seen to cost a lot: a
graph that grows, the tenth graph of one cause, a function that torch.compile gives up. --live opens the terminal UI of
'xlaprof live' instead. Several processes record a log each: run.rank0.log, run.rank1.log...; the report is that of
rank 0.

Everything after the script (or after -m MODULE) belongs to the script. It runs as ``__main__`` in this process,
as under ``python train.py``, with the same output, traceback and exit code. When it has ended, its threads and exit
handlers included, the report follows on standard error, so that the output of the script can still be piped; with
--json it goes into a file beside the recording, run.json, which holds nothing else. A script
that calls xlaprof.record itself joins this recording. A script that ends by os._exit or a signal leaves its recording,
and no report.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import xlaprof
from xlaprof import import_hook, running
from xlaprof.collection import no_collection
from xlaprof.covered import covered
from xlaprof.errors import UserError, warn
from xlaprof.recording import recorder, trace  # noqa: F401  # the program's scopes need it
from xlaprof.recording.logfile import MODE, private, rank_and_world, rank_path
from xlaprof.text.output import say

if TYPE_CHECKING:
    from xlaprof.commands._beside import Beside
    from xlaprof.events import Event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [-h] [-o LOG] [--force] [--log-mode MODE] [--json] [--no-report] [--live] [--code]\n"
        "                   [--strict-parity] (SCRIPT | -m MODULE) [ARGS ...]"
    )
    parser.add_argument("-o", "--output", metavar="LOG", default="run.log", help="the recording (default: run.log)")
    parser.add_argument("--force", action="store_true", help="replace LOG, and run.json, whatever they hold")
    parser.add_argument(
        "--log-mode", metavar="MODE", type=_mode, default=MODE, help="permissions of the recording (default: 600)"
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON beside the recording: run.json")
    parser.add_argument("--no-report", action="store_true", help="record only")
    parser.add_argument("--live", action="store_true", help="follow the run in the terminal while it lasts")
    parser.add_argument("--code", action="store_true", help="keep the texts of compiled programs, for xlaprof show")
    parser.add_argument(
        "--strict-parity", action="store_true", help="behave as PyTorch/XLA even where that is slower (docs/parity.md)"
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module, and ARGS")
    parser.add_argument("script", metavar="SCRIPT", nargs="?", help="the script to run")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments")


def run(args: argparse.Namespace) -> int:
    if args.module is not None:
        program = running.module(args.module)
    elif args.script is not None:
        program = running.script(args.script, args.args)
    else:
        raise UserError("nothing to run: name a script, or a module after -m (see xlaprof run --help)")
    if args.json and not args.no_report and not args.force and rank_and_world()[0] == 0:
        _refuse_foreign(_json_beside(rank_path(args.output, *rank_and_world())))
    sys.argv = program.argv  # the recording is of the program, whoever launched it
    gc.unfreeze()  # the collector is as the program would find it
    with covered(program.path0):
        recording = xlaprof.record(args.output, joinable=True, force=args.force, mode=args.log_mode, code=args.code)
        recording.start()
        if args.strict_parity:
            os.environ["XLAPROF_STRICT_PARITY"] = "1"
        if recorder.active is not None and not args.live and not args.no_report:
            recorder.active.listen(_warn_early())
        import_hook.serve(to=program.code)
        beside = _open_live(recording.path) if args.live else None
        outcome = running.Outcome()
        # As an exit handler, set up before those of the script, this runs after them and after its threads have ended.
        report = (
            None
            if args.no_report
            else _Report(args.output, time.time(), args.json, os.getcwd(), program.path0, args.log_mode, args.force)
        )
        atexit.register(_finish, recording, outcome, os.getpid(), beside, report)
    return running.execute(program, outcome)


def _mode(text: str) -> int:
    """Permissions as chmod takes them: "600"."""
    if not re.fullmatch("[0-7]{3,4}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no mode: give it as chmod does, say 640")
    return int(text, 8)


def _end_by_interrupt() -> None:
    """Have the process end by SIGINT, as Python ends one that was interrupted. To be called late.

    Shells stop their loops for that, and not for an exit code of 130. Python (``run_eval_code_obj``) notes it where
    a piece of source code ends with KeyboardInterrupt, and forgets it with the next: the report's modules have some.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _die_of_interrupt() -> None:
    """End the process by SIGINT, now: where its exit code is settled already."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


def _warn_early() -> Callable[[Event], None]:
    """Prints a line on standard error as soon as something costs a lot, once for each cause."""
    from xlaprof.analysis.early_warnings import EarlyWarnings

    warnings = EarlyWarnings()

    def hear(event: Event) -> None:
        if text := warnings.feed(event):
            warn(text)

    return hear


def _open_live(path: str) -> Beside | None:
    if rank_and_world()[0] > 0:  # the terminal shows rank 0
        return None
    from xlaprof.commands._beside import Beside

    return Beside(path)


class _Report(NamedTuple):
    """The report that is printed at the end."""

    output: str  # as given to -o
    began: float  # s, unix
    as_json: bool
    folder: str  # the current one at the start
    path0: str  # the program's
    mode: int  # permissions of what is written
    force: bool  # replace whatever is there


def _finish(
    recording: xlaprof.record, outcome: running.Outcome, pid: int, beside: Beside | None, report: _Report | None
) -> None:
    if os.getpid() != pid:  # a child forked by the program, which leaves as Python programs do
        return
    try:
        recording.stop(outcome.error)
        if beside is not None:
            beside.wait()
        if report is not None and rank_and_world()[0] == 0:
            with covered(report.path0):
                _print_report(recording, report)
    except KeyboardInterrupt:  # an exit handler's exceptions end nothing
        say(f"interrupted: xlaprof report {recording.path} prints the report")
        _die_of_interrupt()
    if outcome.error == KeyboardInterrupt.__name__:
        _end_by_interrupt()


def _print_report(recording: xlaprof.record, report: _Report) -> None:
    # Imported late: the observed program runs without the modules that print the report.
    with no_collection():  # each would look through all that the program has left
        from xlaprof.commands import report as verb

    path, others = _ranks(report.output, recording.path, report.began)
    if os.path.exists(path) and not os.path.isfile(path):
        say(f"no report: {path} is no file that can be read again")
        return
    if os.getcwd() == report.folder and path.startswith(os.path.join(report.folder, "")):
        path = os.path.relpath(path)  # as people name it: the report has commands with it
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    written = io.StringIO()
    with contextlib.redirect_stdout(written if report.as_json else sys.stderr):
        try:
            verb.run(parser.parse_args([path, *(["--json"] if report.as_json else [])]))
            if report.as_json:
                file = _json_beside(path)
                if not report.force:
                    _refuse_foreign(file)
                with open(file, "w", opener=partial(private, mode=report.mode)) as opened:
                    opened.write(written.getvalue())
                say(f"the report is in {file}")
            elif not others and (seconds := _of_children()) and not xlaprof.report(path).observed:
                say(
                    f"processes that the program started took {seconds:.0f} s of the processor and were not recorded: "
                    "start them with 'python -m xlaprof run SCRIPT' in the place of 'python SCRIPT'"
                )
        except UserError as e:
            say(e.message)
        except OSError as e:
            say(f"cannot write the report to {e.filename}: {e.strerror}")
        if others and not report.as_json:
            say(f"this is rank 0; the others: {' '.join(map(os.path.relpath, others))}")


def _of_children() -> float:
    """Seconds of the processor that processes took which this one started and waited for; 0 where it took more."""
    try:
        from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
    except ImportError:  # not on this system: it is not said
        return 0.0
    children, own = (sum(getrusage(who)[:2]) for who in (RUSAGE_CHILDREN, RUSAGE_SELF))
    return children if children >= max(1.0, own) else 0.0


def _json_beside(log: str) -> str:
    """The file of the report as JSON."""
    return f"{log.removesuffix('.log')}.json"


def _refuse_foreign(file: str) -> None:
    """A file that holds anything but a report is not replaced."""
    try:
        with open(file, "rb") as there:
            begins = there.read(64)
    except FileNotFoundError:
        return
    except OSError as e:
        raise UserError(f"cannot write the report to {file}: {e.strerror}") from None
    if begins and not re.match(rb'\{\s*"schema":\s*\d+,\s*"run":', begins):
        raise UserError(f"{file} is not a report: name another recording (-o), or have it replaced with --force")


def _ranks(output: str, path: str, began: float) -> tuple[str, list[str]]:
    """The log to report on, and the logs of other ranks, which torchrun or the program itself has launched."""
    _, world = rank_and_world()
    if world > 1:
        return path, [rank_path(output, rank, world) for rank in range(1, world)]
    logs: list[str] = []
    while _written_since(began, log := rank_path(path, len(logs), 2)):
        logs.append(log)
    return (logs[0], logs[1:]) if logs else (path, [])


def _written_since(began: float, path: str) -> bool:
    try:
        return os.stat(path).st_mtime >= began - 1.0  # file systems' clocks are coarse
    except OSError:
        return False
