"""A terminal that goes away while SIGHUP is ignored, as under nohup: what reads from it and draws on it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from story import clean, save

from xlaprof.tui.terminal import Terminal, hung_up

#: of a process that may have used jax: what is forked execs at once
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

PATIENCE_S = 120.0  # of a loaded machine

WAITS = """
import xlaprof
with xlaprof.StepTrace("train", step_num=0):
    print("written to nobody")
with open("go") as file:
    file.read()
for _ in range(1_000):
    print("written to nobody")
open("done", "w").close()
"""


def in_a_terminal(cwd: Path, *args: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command in a terminal of its own that ignores SIGHUP, and the terminal's other end, once it has been drawn."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (30, 100))

    def begin() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    started = subprocess.Popen(
        [sys.executable, "-m", "xlaprof", *args], cwd=cwd, stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True, preexec_fn=begin, env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while b"Findings" not in seen:
        seen += os.read(master, 1 << 16)
    return started, master


def test_the_ui_ends_with_its_terminal(tmp_path: Path) -> None:
    save(clean().events, tmp_path / "run.log")
    started, terminal = in_a_terminal(tmp_path, "tui", "run.log")
    os.close(terminal)
    assert started.wait(PATIENCE_S) == 0


def test_the_program_beside_it_goes_on_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WAITS)
    os.mkfifo(tmp_path / "go")
    started, terminal = in_a_terminal(tmp_path, "run", "--live", "train.py")
    os.close(terminal)
    (tmp_path / "go").write_text("")
    assert started.wait(PATIENCE_S) in (0, 120), "120: Python could not flush its stdout"
    assert (tmp_path / "done").exists()


def test_it_is_served_to_a_browser_and_ends_with_its_session(tmp_path: Path) -> None:
    save(clean().events, tmp_path / "run.log")
    driver = {"TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver", "COLUMNS": "100", "ROWS": "30"}
    served = subprocess.Popen(
        [sys.executable, "-m", "xlaprof", "tui", "run.log"], cwd=tmp_path, env={**os.environ, **driver},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert served.stdin is not None
    assert served.stdout is not None
    seen = b""
    while b"Findings" not in seen:
        chunk = os.read(served.stdout.fileno(), 1 << 16)
        assert chunk, seen
        seen += chunk
    served.stdin.close()
    while os.read(served.stdout.fileno(), 1 << 16):
        pass
    served.stdout.close()
    assert served.wait(PATIENCE_S) == 0


def test_what_is_drawn_on_a_closed_terminal_goes_nowhere() -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as file:
        terminal = Terminal(file)
        assert not hung_up(slave)
        assert (terminal.fileno(), terminal.isatty()) == (slave, True)
        os.close(master)
        assert hung_up(slave)
        for _ in range(3):
            assert terminal.write("x" * 100_000) == 100_000
            terminal.flush()
        assert terminal.is_gone()
        # nothing is left in the file's buffer that closing it would write
        os.dup2(os.open(os.devnull, os.O_WRONLY), slave)
