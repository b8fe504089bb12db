"""What is addressed to the person at the keyboard: an error, and a warning."""

from __future__ import annotations

import contextlib

from xlaprof.text.output import say


class UserError(Exception):
    """Something the user can put right: reported in one line, without a traceback.

    ``message`` says what happened, with which value, and the way out. ``code`` is the exit code of the
    command line (2, as for wrong usage, unless a verb gives another code a meaning).
    """

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def warn(message: str) -> None:
    """One line on stderr, if the program has one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        say(message)
