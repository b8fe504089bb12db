"""The terminal UI beside a program: ``xlaprof run --live``.

In tmux it gets a pane of its own. Elsewhere it takes the terminal; what the program writes there meanwhile, through a
terminal of its own, follows when the UI is closed. That is kept by a third process (``python -m`` this module), which
outlives a program that is killed: then it closes the UI, or that and the user's shell would share a keyboard. What the
program writes elsewhere, into a pipe or a file, is left alone.
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
_ENDED = b"."  # the program's last word
#: what a terminal is told for the UI, where that cannot: mouse, focus and paste as they were, cursor, first screen
_LEAVE = b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[?1049l"


class Beside:
    """The UI over ``log``, open from now on. Raises :class:`UserError` where there is no terminal."""

    def __init__(self, log: str) -> None:
        self._kept: dict[int, int] = {}  # descriptor of ours that is the terminal -> a copy of it
        self._keeper: subprocess.Popen[bytes] | None = None
        if os.environ.get("TMUX") and os.environ.get("TMUX_PANE"):
            here = os.environ["TMUX_PANE"]
            pane = ["tmux", "split-window", "-d", "-t", here, "-l", "70%", "-c", os.getcwd(), *_LIVE, log]
            if subprocess.run(pane, capture_output=True).returncode == 0:
                return
        try:
            terminal: IO[bytes] = open("/dev/tty", "r+b", buffering=0)  # noqa: SIM115  # the children's
        except OSError:
            raise UserError(f"--live needs a terminal to draw in; without one: xlaprof live {log}, elsewhere") from None
        with terminal:
            self._take(log, terminal)

    def _take(self, log: str, terminal: IO[bytes]) -> None:
        import pty
        import termios

        master, slave = pty.openpty()
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST  # the real terminal does that
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        with contextlib.suppress(OSError):
            termios.tcsetwinsize(slave, termios.tcgetwinsize(terminal.fileno()))
        told, self._end = os.pipe()
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(master), str(told), log],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            pass_fds=[master, told],
        )
        os.close(told)
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
        """Return when the UI has been closed, and what was kept from the terminal is there."""
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


def _keep(master: int, told: int, log: str) -> int:
    """Run the UI, and hold back what comes from ``master`` while it does. Return when both are at their end."""
    import termios

    settings = termios.tcgetattr(0)
    ui = subprocess.Popen([*_LIVE, log])
    held = bytearray()
    sources = [told, master]
    while sources or ui.poll() is None:
        ready, _, _ = select.select(sources, [], [], 0.1)
        if master in ready:
            try:
                chunk = os.read(master, _CHUNK)
            except OSError:  # nobody has the other end open
                chunk = b""
            held += chunk
            if not chunk:
                sources.remove(master)
        elif told in ready:  # the program is at its end, and what it wrote has been read
            if not os.read(told, 1):  # by force
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
