"""The terminal UI beside a program: ``xlaprof run --live``.

The UI has the terminal, the program goes on in the background with a pseudo-terminal of its own. A third process
(``python -m`` this module) stands between: what the program writes it hands to the UI, and to the terminal once the UI
is closed. It outlives a program that is killed, and then closes the UI, so that UI and shell do not share a keyboard;
and a UI that is killed, so that the program can go on writing. Output into pipes and files is left alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections import deque
from typing import IO

from xlaprof.errors import UserError
from xlaprof.text.quantities import size_text
from xlaprof.tui.terminal import hung_up

_CHUNK = 1 << 16
_HELD = 16 << 20  # bytes of output kept for the terminal; earlier ones are left out, and that is said
_QUEUED = 4 << 20  # bytes that the UI has not read yet
_END_OF_INPUT = b"\x04"
_ENDED = b"."  # sent by a program that ends in order
#: resets the terminal for a UI that was killed: mouse, focus and paste, cursor, main screen
_LEAVE = b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[?1049l"


class Beside:
    """The UI over ``log``, open from now on. Raises :class:`UserError` where there is no terminal."""

    def __init__(self, log: str) -> None:
        self._kept: dict[int, int] = {}  # descriptor that was the terminal -> a copy of the terminal
        try:
            terminal: IO[bytes] = open("/dev/tty", "r+b", buffering=0)  # noqa: SIM115  # for the children
        except OSError:
            raise UserError(f"--live needs a terminal to draw in; without one: xlaprof live {log}, elsewhere") from None
        with terminal:
            self._take(log, terminal)

    def _take(self, log: str, terminal: IO[bytes]) -> None:
        import pty
        import termios

        master, slave = pty.openpty()
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST  # the real terminal processes the output,
        settings[3] &= ~termios.ECHO  # and shows what is typed
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        with contextlib.suppress(OSError):
            termios.tcsetwinsize(slave, termios.tcgetwinsize(terminal.fileno()))
        ended, self._end = os.pipe()
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, "keep", str(master), str(ended), str(os.getpid()), log],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            pass_fds=[master, ended],
        )
        os.close(ended)
        os.close(master)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for fd in (0, 1, 2):  # keys are the UI's: the program waits for its input until the UI is closed
            if os.isatty(fd):
                self._kept[fd] = os.dup(fd)
                os.dup2(slave, fd)
        os.close(slave)

    def wait(self) -> None:
        """Return when the UI has been closed and the terminal shows the output that was held back."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for fd, terminal in self._kept.items():
            os.dup2(terminal, fd)
            os.close(terminal)
        os.write(self._end, _ENDED)
        os.close(self._end)
        self._keeper.wait()


class _Held:
    """The last of what a program wrote."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = self._lost = 0

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size > _HELD:
            gone = len(self._chunks.popleft())
            self._size, self._lost = self._size - gone, self._lost + gone

    def write(self) -> None:
        """Write all of it to the terminal."""
        if self._lost:
            _write(f"xlaprof: {size_text(self._lost)} of earlier output are left out\r\n".encode())
            self._lost = 0
        while self._chunks:
            chunk = self._chunks.popleft()
            self._size -= len(chunk)
            _write(chunk)


class _Queue:
    """What a program wrote, on its way to the UI, which may be slow, or gone."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._waiting = bytearray()

    def add(self, chunk: bytes) -> None:
        self._waiting += chunk
        del self._waiting[: max(0, len(self._waiting) - _QUEUED)]
        self.push()

    def push(self) -> None:
        """Hand over as much as is taken."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting[:_CHUNK])]


def _keep(master: int, ended: int, pid: int, log: str) -> int:
    """Run the UI, hand it the output that comes from ``master``, and write that once it is closed. Return when both the
    UI and the program ``pid`` have ended.

    ``ended``: readable when the program has ended.
    """
    import termios

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C after the UI is closed means the program
    settings = termios.tcgetattr(0)
    reading, writing = os.pipe()
    show = [sys.executable, "-m", "xlaprof.commands._beside", "show", str(reading), str(pid), log]
    ui = subprocess.Popen(show, pass_fds=[reading])
    os.close(reading)
    held, queue = _Held(), _Queue(writing)
    sources, keys = [master, ended], [0]
    closed = False
    while sources or not closed:
        ready, _, _ = select.select([*sources, *keys] if closed else sources, [], [], 0.1)
        if master in ready:
            try:
                chunk = os.read(master, _CHUNK)
            except OSError:  # the other end is closed
                chunk = b""
            held.add(chunk)
            queue.add(chunk)
            if not chunk:
                sources.remove(master)
        elif ended in ready:  # and all output has been read
            if not os.read(ended, 1):  # the program was killed
                ui.kill()
            sources.clear()
            keys.clear()
        elif 0 in ready:
            try:
                os.write(master, os.read(0, _CHUNK) or _END_OF_INPUT)
            except OSError:  # the terminal was hung up, or the program does not read
                keys.clear()
            if hung_up(0):  # its end would be read again and again
                keys.clear()
        queue.push()
        if not closed and ui.poll() is not None:
            closed = True
            if ui.returncode < 0:  # killed, by us or by others
                _write(_LEAVE)
                with contextlib.suppress(termios.error):  # the terminal was hung up
                    termios.tcsetattr(0, termios.TCSADRAIN, settings)
        if closed:
            held.write()
    return 0


def _write(data: bytes) -> None:
    """Write to the terminal. Once it was hung up nobody reads; the program goes on, and its output is taken still."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


def _show(output: int, pid: int, log: str) -> int:
    """The UI over ``log``, with what comes out of ``output``, which the program ``pid`` has written."""
    from xlaprof.commands._loading import follow
    from xlaprof.commands._looking import look
    from xlaprof.tui.program import Output, Program

    return look(log, follow(log), Program(pid, Output(output)))


if __name__ == "__main__":
    if sys.argv[1] == "keep":
        sys.exit(_keep(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
    sys.exit(_show(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
