"""Text made safe for one kind of output: a function for each.

A log may be anybody's, and so may every string in it: it must not move a terminal's cursor, write to the clipboard,
turn the direction of writing, or command a runner of GitHub, which takes ``::error::`` at the beginning of a line, and
``##[error]`` anywhere in it, for a command.
"""

from __future__ import annotations

import re

from xlaprof.text.strings import printable

_COMMAND = re.compile(r"^((?: |\x1b\[[0-9;]*m)*:):", re.MULTILINE)  # after blanks and colours


def for_terminal(text: str, styled: bool = False) -> str:
    """Lines of text for a terminal, a pipe or a job's log. ``styled``: made of :func:`for_screen`, and coloured."""
    return _COMMAND.sub(r"\1 :", text if styled else for_screen(text)).replace("##[", "## [")


def for_screen(text: str) -> str:
    """Lines of text that are to be styled, and not printed yet."""
    return "\n".join(map(printable, text.split("\n")))


def for_json(text: str) -> str:
    """JSON in ASCII, whose strings may hold anything, for a job's log too. It reads as before."""
    return text.replace("##[", "##\\u005b")


def for_html(text: str) -> str:
    """Lines of text for a page in a browser."""
    from html import escape  # brings all names of characters, which an observed program need not load

    return escape(for_screen(text))


def for_github(title: str, text: str, file: str = "", line: int = 0) -> str:
    """The workflow command that shows ``text`` as an error, at ``line`` of ``file`` where both are given."""
    where = f"file={_property(file)},line={line}," if file and line > 0 else ""
    return f"::error {where}title={_property(title)}::{_data(for_screen(text))}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\n", "%0A").replace("##[", "## [")


def _property(text: str) -> str:
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")
