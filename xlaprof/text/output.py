"""The one door to standard output and standard error: nothing else prints.

What passes it is safe for terminals (:mod:`xlaprof.text.safe`) and fits streams of any encoding, and terminals that
draw nothing but ASCII.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import IO

from xlaprof.text.safe import for_github, for_json, for_terminal
from xlaprof.text.strings import printable

#: what pages draw with, in ASCII, cell for cell; of bars and curves the height remains
_ASCII = str.maketrans("─·…×▏▎▍▌▋▊▉█▁▂▃▄▅▆▇", "--~x::::=###__.-=+*")


def write(text: str, file: IO[str] | None = None, styled: bool = False) -> None:
    """Write lines of text on ``file`` (default: standard output). ``styled``: their colours are ours, and stay.

    What the encoding lacks, or with TERM=dumb all that is not ASCII, is drawn in ASCII; other letters are question
    marks.
    """
    _put(for_terminal(text, styled), file)


def write_json(text: str) -> None:
    """Write JSON in ASCII on standard output."""
    _put(for_json(text))


def say(message: str) -> None:
    """One line on standard error, in xlaprof's name."""
    write(f"xlaprof: {printable(message)}\n", sys.stderr)


def progress(message: str) -> None:
    """Replace the line on the terminal at standard error."""
    _put(f"\r{printable(message)}\x1b[K", sys.stderr)


def annotate(errors: Iterable[tuple[str, str, str, int]], file: IO[str] | None = None) -> None:
    """Workflow commands of GitHub on ``file``: title, text, and file and line ("" and 0 where there are none)."""
    _put("".join(for_github(*one) for one in errors), file)


def _put(text: str, file: IO[str] | None = None) -> None:
    file = file or sys.stdout
    encoding = "ascii" if os.environ.get("TERM") == "dumb" else getattr(file, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    file.write(text)
    file.flush()
