"""The terminal UI beside a program: ``xlaprof run --live``.

In tmux the UI gets a pane of its own. Elsewhere it takes the terminal: the program writes to a pseudo-terminal
meanwhile, and its output follows when the UI is closed. A third process (``python -m`` this module) keeps that output.
It outlives a program that is killed, and then closes the UI, so that UI and shell do not share a keyboard. Output of
the program into pipes and files is left alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from typing import IO

from xlaprof.errors import UserError

_LIVE = (sys.executable, "-m", "xlaprof", "live")
_CHUNK = 1 << 16
_ENDED = b"."  # sent by a program that ends in order
#: resets the terminal for a UI that was killed: mouse, focus and paste, cursor, main screen
_LEAVE = b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[?1049l"


class Beside:
    """The UI over ``log``, open from now on. Raises :class:`UserError` where there is no terminal."""

    def __init__(self, log: str) -> None:
        self._kept: dict[int, int] = {}  # descriptor that was the terminal -> a copy of the terminal
        self._keeper: subprocess.Popen[bytes] | None = None
        if os.environ.get("TMUX") and os.environ.get("TMUX_PANE"):
            here = os.environ["TMUX_PANE"]
            pane = ["tmux", "split-window", "-d", "-t", here, "-l", "70%", "-c", os.getcwd(), *_LIVE, log]
            if subprocess.run(pane, capture_output=True).returncode == 0:
                return
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
        settings[1] &= ~termios.OPOST  # the real terminal processes the output
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        with contextlib.suppress(OSError):
            termios.tcsetwinsize(slave, termios.tcgetwinsize(terminal.fileno()))
        ended, self._end = os.pipe()
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(master), str(ended), log],
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
        for fd in (1, 2):
            if os.isatty(fd):
                self._kept[fd] = os.dup(fd)
                os.dup2(slave, fd)
        os.close(slave)

    def wait(self) -> None:
        """Return when the UI has been closed and the terminal shows the output that was held back."""
        if self._keeper is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for fd, terminal in self._kept.items():
            os.dup2(terminal, fd)
            os.close(terminal)
        os.write(self._end, _ENDED)
        os.close(self._end)
        self._keeper.wait()


def _keep(master: int, ended: int, log: str) -> int:
    """Run the UI, and hold back the output that comes from ``master`` until it is closed. Return when both have ended.

    ``ended``: readable when the program has ended.
    """
    import termios

    settings = termios.tcgetattr(0)
    ui = subprocess.Popen([*_LIVE, log])
    held = bytearray()
    sources = [ended, master]
    while sources or ui.poll() is None:
        ready, _, _ = select.select(sources, [], [], 0.1)
        if master in ready:
            try:
                chunk = os.read(master, _CHUNK)
            except OSError:  # the other end is closed
                chunk = b""
            held += chunk
            if not chunk:
                sources.remove(master)
        elif ended in ready:  # and all output has been read
            if not os.read(ended, 1):  # the program was killed
                ui.kill()
                ui.wait()
                os.write(1, _LEAVE)
                termios.tcsetattr(0, termios.TCSADRAIN, settings)
            sources.clear()
        if held and ui.poll() is not None:
            _write(held)
    _write(held)
    return 0


def _write(held: bytearray) -> None:
    while held:
        del held[: os.write(1, held[:_CHUNK])]


if __name__ == "__main__":
    sys.exit(_keep(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
