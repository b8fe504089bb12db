"""The program beside the screen, of ``xlaprof run --live``: what it writes, and how it is ended."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import signal
from collections import deque

from xlaprof.text.cells import shorten

LINES = 10_000  # kept
_CHUNK = 1 << 16  # bytes of one read
_AT_ONCE = 16  # reads
_LONGEST = 2_000  # characters of a line
#: what moves the cursor, colours, or names the terminal: sequences of ECMA-48, and strings up to their terminator
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
#: the beginning of one, whose rest comes with the next read
_TORN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,500}\x1b?|[ -/]*)$")


class Output:
    """What a program writes to its terminal, as lines of plain text, as they come out of the file descriptor ``fd``."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""  # of the last read: the beginning of an escape sequence
        self._line: list[str] = []  # the last line, which has not ended,
        self._anew = False  # and is written over by what comes next
        self.lines: deque[str] = deque(maxlen=LINES)  # those that have
        self.count = 0  # of all lines that ended

    @property
    def last(self) -> str:
        """The line that has not ended yet: a progress bar, a question."""
        return _shown("".join(self._line))

    def poll(self) -> bool:
        """Take in what has been written since; False: nothing was. Never waits."""
        some = False
        for _ in range(_AT_ONCE):
            try:
                data = os.read(self._fd, _CHUNK)
            except OSError:  # nothing there now, or its end
                break
            if not data:
                break
            some = True
            self.feed(data)
        return some

    def feed(self, data: bytes) -> None:
        """Take in bytes; they may end anywhere."""
        text = self._rest + self._decode(data)
        torn = _TORN.search(text)
        self._rest = text[torn.start() :] if torn is not None else ""
        text = _ESCAPES.sub("", text[: torn.start()] if torn is not None else text)
        for number, line in enumerate(text.replace("\r\n", "\n").split("\n")):
            if number:
                self.lines.append(self.last)
                self.count += 1
                self._line, self._anew = [], False
            self._write(line)

    def _write(self, text: str) -> None:
        """Write on the last line; a carriage return begins it anew, as progress bars do."""
        for number, part in enumerate(text.split("\r")):
            self._anew |= number > 0
            if not part:
                continue
            if self._anew:
                self._line, self._anew = [], False
            if sum(map(len, self._line)) < _LONGEST:
                self._line.append(part)


def _shown(text: str) -> str:
    while "\b" in text:  # spinners take a character back
        text = re.sub("[^\b]\b|^\b+", "", text, count=1)
    return shorten(text.expandtabs(), _LONGEST)


class Program:
    """A process of this machine."""

    def __init__(self, pid: int, output: Output) -> None:
        self.pid, self.output = pid, output
        self.interrupted = False

    def interrupt(self) -> None:
        """End it as Ctrl-C does."""
        self.interrupted = True
        self._send(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._send(signal.SIGKILL)

    def _send(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, which)
