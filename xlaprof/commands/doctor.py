"""Run a program under each layer of torch.compile, and say which one is at fault.

    xlaprof doctor train.py --epochs 1
    xlaprof doctor --layers aot_eager,inductor --timeout 120 -m package.train

The program runs once without torch.compile, and once under each of backend="eager", "aot_eager",
"aot_eager_decomp_partition", "inductor" and "openxla", whatever backend it names itself. Each run is a process of its
own, with the same seeds and a time limit. The first layer at which the program fails, gives wrong numbers, runs out of
memory, does not end or is slow is the one at fault.

Numbers are compared graph by graph, where each is called for the first time: outputs, gradients and what is written in
place, with the same graph in eager PyTorch, by a third run in float64. What the program returns from its first compiled
calls, and its first losses, are compared with the run without torch.compile.

A graph at fault is made smaller with PyTorch's minifier, and written as a program that runs alone. It holds the values
of the tensors that the graph was called with.

Everything after the script (or after -m MODULE) belongs to the script. What it writes it writes each time. Exit codes:
0 nothing is at fault; 1 something is; 2 it cannot be told, as where the program fails without torch.compile too.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from xlaprof import running
from xlaprof.doctor.ladder import PLAIN, climb
from xlaprof.doctor.layers import (
    LAYERS,
    Diagnosis,
    Layer,
    Reproducer,
    Seen,
    differs_as_a_whole,
    results,
    verdicts,
    without_whole,
)
from xlaprof.doctor.reproducer import reproduce
from xlaprof.errors import UserError
from xlaprof.text.output import progress, say, write_json
from xlaprof.text.quantities import elapsed
from xlaprof.text.strings import did_you_mean

_BACKENDS = [layer.backend for layer in LAYERS[1:]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [-h] [-o FOLDER] [--layers NAMES] [--timeout S] [--no-minify] [--json]\n"
        "                      (SCRIPT | -m MODULE) [ARGS ...]"
    )
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="keep what is written there (default: a new folder doctor-N)"
    )
    parser.add_argument(
        "--layers",
        metavar="NAMES",
        type=_layers,
        default=LAYERS[1:],
        help=f"these, with commas between (default: {','.join(_BACKENDS)})",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=600.0,
        help="seconds for each layer, and for the minifier (default: 600)",
    )
    parser.add_argument("--no-minify", action="store_true", help="leave graphs at fault as they are")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module, and ARGS")
    parser.add_argument("script", metavar="SCRIPT", nargs="?", help="the script to run")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments")


def run(args: argparse.Namespace) -> int:
    program = _program(args)
    folder = _folder(args.output)
    seen: list[Seen] = []
    for layer in (LAYERS[0], *args.layers):
        one = climb(layer, folder / (layer.backend or PLAIN), program, args.timeout, partial(_tell, layer.name))
        _tell_end(f"{layer.name}: {results(one)}, {elapsed(one.took)}")
        if layer is LAYERS[0]:
            _must_run(one)
        seen.append(one)
    unsteady = any(map(differs_as_a_whole, seen)) and _differs_by_itself(program, folder, args.timeout)
    if unsteady:
        seen = [without_whole(one) for one in seen]
    found = verdicts(seen)
    reproducer = None if args.no_minify else _reproduce(seen, args.timeout)
    diagnosis = Diagnosis(program, str(folder), seen, found, reproducer, unsteady)
    if args.json:
        write_json(msgspec.json.format(msgspec.json.encode(diagnosis)).decode() + "\n")
    else:
        from xlaprof.pages.doctor import render
        from xlaprof.pages.page import show_page

        show_page(partial(render, diagnosis))
    return 1 if found else 0


def _program(args: argparse.Namespace) -> list[str]:
    """The command line after ``python``; what cannot be run is found before anything is."""
    if args.module is not None:
        running.module(args.module)
        return ["-m", *args.module]
    if args.script is None:
        raise UserError("nothing to run: name a script, or a module after -m (see xlaprof doctor --help)")
    running.script(args.script, args.args)
    return [args.script, *args.args]


def _folder(given: str | None) -> Path:
    """Where it all goes: ``given``, which must be new or empty, or the first doctor-N that is free."""
    if given is None:
        number = next(n for n in count(1) if not Path(f"doctor-{n}").exists())
        given = f"doctor-{number}"
    folder = Path(given)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{given} is there already: name a folder that is new or empty (-o)")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(f"cannot make the folder {given}: {e.strerror}") from None
    return folder.resolve()


def _must_run(plain: Seen) -> None:
    for failure in plain.failures:
        where = f" at {failure.place}" if failure.place else ""
        raise UserError(
            f"the program fails without torch.compile{where}: {failure.text} (its output is in {plain.output})"
        )
    if not plain.calls:
        raise UserError("the program calls nothing that torch.compile has compiled: there is no layer to look into")


def _differs_by_itself(program: list[str], folder: Path, limit: float) -> bool:
    """Does the program return something else each time, without torch.compile too?"""
    again = climb(LAYERS[0], folder / "plain-again", program, limit, partial(_tell, "eager, once more"))
    _tell_end("")
    return differs_as_a_whole(again)


def _reproduce(seen: list[Seen], limit: float) -> Reproducer | None:
    """A program that runs alone, for the first graph at fault."""
    for one in seen:
        for failure in one.failures:
            if failure.graph:
                found = reproduce(failure, limit, partial(_tell, "making the graph smaller"))
                _tell_end("")
                return found
    return None


def _tell(what: str, seconds: float) -> None:
    if sys.stderr.isatty():
        progress(f"{what}: {elapsed(seconds)}")


def _tell_end(text: str) -> None:
    if sys.stderr.isatty():
        progress("")
    if text:
        say(text)


def _layers(text: str) -> list[Layer]:
    """Backends with commas between, in the ladder's order."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in _BACKENDS]
    if unknown or not names:
        meant = did_you_mean(unknown[0], _BACKENDS) if unknown else ""
        raise argparse.ArgumentTypeError(f"'{text}' names no layers of {', '.join(_BACKENDS)} {meant}".rstrip())
    return [layer for layer in LAYERS[1:] if layer.backend in names]


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return number
