"""The one exception that is addressed to the person at the keyboard."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right: reported in one line, without a traceback.

    ``message`` says what happened, with which value, and the way out. ``code`` is the exit code of the
    command line (2, as for wrong usage, unless a verb gives another code a meaning).
    """

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
