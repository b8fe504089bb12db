"""The terminal that the UI is drawn on, as long as it is there: a window may be closed, a connection may break.

SIGHUP ends a program then, unless it ignores it, as under ``nohup``. The end of its input would be read again and
again, and a thread that cannot draw any more would leave the UI waiting for it.
"""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Iterator
from typing import Any, TextIO


def hung_up(fd: int) -> bool:
    """Whether the other end of a terminal or a pipe was closed."""
    if not hasattr(select, "poll"):  # Windows
        return False
    looking = select.poll()
    looking.register(fd, 0)  # what is asked for is told in any case
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in looking.poll(0))


class Terminal:
    """Stands for ``file``. What is written once nobody is there goes nowhere."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write ``text``, if there is somebody to read it."""
        if not self._broken:
            try:
                self._file.write(text)
            except OSError:
                self._broken = True
        return len(text)

    def flush(self) -> None:
        """Have it seen."""
        if not self._broken:
            try:
                self._file.flush()
            except OSError:
                self._broken = True

    def is_gone(self) -> bool:
        """Whether nobody is at the other end any more."""
        return self._broken or hung_up(sys.stdin.fileno())


@contextlib.contextmanager
def drawn_on() -> Iterator[Terminal]:
    """Have Textual, which draws on the process's own stderr, draw on a :class:`Terminal`."""
    own = sys.__stderr__
    assert own is not None  # it was asked whether it is a terminal
    terminal = Terminal(own)
    sys.__stderr__ = terminal  # type: ignore[misc,assignment]
    try:
        yield terminal
    finally:
        sys.__stderr__ = own  # type: ignore[misc]
