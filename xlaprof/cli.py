"""The ``xlaprof`` command: finds the verb, runs it, and reports errors in one line and an exit code.

Exit codes: 0 done; 2 the user's mistake (:class:`~xlaprof.errors.UserError`, wrong usage); 70 a defect of xlaprof
itself; 74 the output cannot be written; 141 the reader of the output has gone. A verb may return others with a meaning
of its own. Ctrl-C ends the process by the signal (130 in a shell).
"""

from __future__ import annotations

import argparse
import ast
import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import NoReturn

from xlaprof import commands
from xlaprof.collection import no_collection
from xlaprof.errors import UserError
from xlaprof.text.output import say, write
from xlaprof.text.strings import did_you_mean
from xlaprof.version import __version__

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
OUTPUT_LOST = 74  # EX_IOERR
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # the disk's fault, wherever the output goes
INTERRUPTED = 128 + 2  # as a shell reports SIGINT
BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE

_STDOUT = sys.__stdout__  # None where the process has none; a script under ``xlaprof run`` may replace sys.stdout

DESCRIPTION = "Says why compiled PyTorch and JAX are slow: on which line, at what cost, and what to change."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return its exit code."""
    try:
        code = _dispatch(sys.argv[1:], of_process=True) if argv is None else _dispatch(list(argv))
        if _STDOUT and not _STDOUT.closed:
            _STDOUT.flush()  # so that a broken pipe is reported here, not at interpreter exit
        return code
    except UserError as e:
        say(e.message)
        return e.code
    except KeyboardInterrupt as e:
        if argv is not None:
            return INTERRUPTED
        if not hasattr(e, "__xlaprof_program__"):  # of a program under ``xlaprof run`` it has been printed
            sys.excepthook = lambda *_: None
        raise  # ends the process by the signal, for which shells stop their loops
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except Exception as e:
        if isinstance(e, OSError) and e.errno in _FULL and not e.filename:
            _discard_output()
            say(f"cannot write the output: {e.strerror}")
            return OUTPUT_LOST
        if os.environ.get("XLAPROF_TRACEBACK"):
            raise
        where = e.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        assert where is not None
        file = os.path.basename(where.tb_frame.f_code.co_filename)
        say(
            f"internal error: {type(e).__name__}: {e} ({file}:{where.tb_lineno}). "
            "This is a defect of xlaprof: run again with XLAPROF_TRACEBACK=1 and report the traceback."
        )
        return INTERNAL_ERROR


def _discard_output() -> None:
    """The interpreter flushes it once more at exit."""
    if _STDOUT:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT.fileno())


def verbs() -> dict[str, str]:
    """The verbs and the files that define them, found without importing any."""
    return {
        file.removesuffix(".py").replace("_", "-"): os.path.join(directory, file)
        for directory in commands.__path__
        for file in sorted(os.listdir(directory))
        if file.endswith(".py") and not file.startswith("_")
    }


def summary(path: str) -> str:
    """First line of the docstring of the file that defines a verb."""
    with open(path, "rb") as file:
        return (ast.get_docstring(ast.parse(file.read())) or "").partition("\n")[0].rstrip(".")


def _module(verb: str) -> ModuleType:
    return importlib.import_module(f"{commands.__name__}.{verb.replace('-', '_')}")


class _Parser(argparse.ArgumentParser):
    """argparse that reports wrong usage as a :class:`UserError`: one line that names the help."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")

    def print_help(self, _: object = None) -> None:
        write(self.format_help())  # argparse's own says nothing of a full disk


def _complete() -> None:
    """Answer a shell that asks what may follow (``xlaprof completion``), and end the process."""
    import argcomplete

    parser = argparse.ArgumentParser("xlaprof", description=DESCRIPTION)
    known = parser.add_subparsers()
    for verb, file in verbs().items():
        one = known.add_parser(verb, help=summary(file))
        if verb in os.environ.get("COMP_LINE", "").split()[1:2]:  # only this verb is imported
            _module(verb).add_arguments(one)
    argcomplete.autocomplete(parser, always_complete_options=False)


def _dispatch(argv: list[str], of_process: bool = False) -> int:
    """Run a command line; ``of_process``: the one that this process was started with."""
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    if not argv or argv[0] in ("-h", "--help", "help"):
        _print_help()
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        write(f"xlaprof {__version__}\n")
        return 0
    verb, rest = argv[0], argv[1:]
    known = verbs()
    if verb not in known:
        hint = did_you_mean(verb, known) or "see xlaprof --help"
        raise UserError(f"unknown {'option' if verb.startswith('-') else 'verb'} '{verb}': {hint}")
    with no_collection():
        module = _module(verb)
    if of_process:
        gc.freeze()  # what is imported stays to the end: no collection looks through it, the last ones neither
    parser = _Parser(
        prog=f"xlaprof {verb}",
        description=module.__doc__,
        # made for each option; without a width it imports shutil, for the terminal's
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=None if {"-h", "--help"} & {*rest} else 80),
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(rest))
    return code


def _print_help() -> None:
    files = verbs()
    width = max(map(len, files), default=0)
    explained = "".join(f"  {verb:{width}}  {summary(file)}\n" for verb, file in files.items())
    write(f"usage: xlaprof <verb> ...\n\n{DESCRIPTION}\n\n{explained}\n")
    write("'xlaprof <verb> --help' explains a verb; 'xlaprof --version' prints the version.\n")
