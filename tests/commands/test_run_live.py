"""``xlaprof run --live``: the UI has the terminal, with the program's output, which follows when it is closed."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

#: of a process that may have used jax: what is forked execs at once
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

PROGRAM = """
import sys, xlaprof
print("to the terminal:", sys.stdout.isatty(), flush=True)
for i in range(3):
    with xlaprof.StepTrace("train", step_num=i):
        pass
print("to stderr", file=sys.stderr)
{end}
"""


class Session:
    """A command in a terminal of its own, which has no tmux."""

    def __init__(self, cwd: Path, *args: str, stdout: int | None = None) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
        environment |= {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        environment["XDG_CONFIG_HOME"] = str(cwd / "config")  # nothing that its user chose
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            termios.tcsetwinsize(0, (30, 100))
            if stdout is not None:
                os.dup2(stdout, 1)
            command = shlex.join([sys.executable, "-m", "xlaprof", "run", *args])
            # a shell, as there is one: the terminal is not hung up when the program ends
            os.execve("/bin/sh", ["sh", "-c", f"{command}; code=$?; read _; exit $code"], environment)
        self.seen = b""

    def until(self, text: str, after: str = "") -> None:
        """Read until ``text`` comes, after ``after`` has come."""
        deadline = time.monotonic() + 120  # a UI that goes on drawing is no sign of it
        while text.encode() not in self.seen[(start := self.seen.find(after.encode())) :] or start < 0:
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"never saw {text!r}: {self.seen[-2000:]!r}"
            chunk = self._read()
            assert chunk, f"ended without {text!r}: {self.seen[-2000:]!r}"

    def _read(self) -> bytes:
        try:
            chunk = os.read(self.terminal, 1 << 16)
        except OSError:
            chunk = b""
        self.seen += chunk
        return chunk

    def press(self, key: str) -> None:
        os.write(self.terminal, key.encode())

    def end(self) -> int:
        """Press enter, read to the end; the exit code."""
        ended = False
        while not ended:
            self.press("\n")  # again: a terminal that is being given back forgets what was typed
            while not ended and select.select([self.terminal], [], [], 1)[0]:
                ended = not self._read()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(PROGRAM).format(end="sys.exit(3)"))
    return path


def test_the_output_comes_when_the_ui_is_closed_and_then_the_report(tmp_path, program) -> None:
    session = Session(tmp_path, "--live", "train.py")
    session.until("exit code 3")  # the UI says how the program ended
    session.press("u")  # Output: what is shown first is what its user looked at last
    session.until("to stderr")
    session.press("q")
    session.until("Nothing was observed but")
    assert session.end() == 3
    shown = session.seen.decode()
    after = shown[shown.rindex("\x1b[?1049l") :]  # the UI gives the screen back
    assert "to the terminal: True" in after
    assert after.index("to the terminal") < after.index("to stderr") < after.index("Where a step's time goes")


def test_output_into_a_pipe_is_left_alone(tmp_path, program) -> None:
    reading, writing = os.pipe()
    session = Session(tmp_path, "--live", "--no-report", "train.py", stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as piped:
        assert piped.readline() == "to the terminal: False\n"  # while the UI is open
        session.until("exit code 3")
        session.press("q")
        session.until("\x1b[?1049l")
        assert session.end() == 3
        assert piped.read() == ""


def test_a_killed_program_closes_the_ui_and_what_it_wrote_is_not_lost(tmp_path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(end="import threading; threading.Event().wait()"))
    session = Session(tmp_path, "--live", "train.py")
    session.until("Step time")
    for pid in children(session.pid):
        os.kill(pid, signal.SIGKILL)
    session.until("to stderr")
    assert session.end() == 128 + 9


ENDLESS = PROGRAM.format(end="import threading; threading.Event().wait()")


def test_the_output_is_in_a_pane_and_quitting_asks_before_it_ends_the_program(tmp_path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    session = Session(tmp_path, "--live", "--no-report", "train.py")
    session.until("Step time")
    session.press("u")
    session.until("to stderr")
    assert b"\x1b[?1049l" not in session.seen, "the UI is still there"
    session.press("\x03")
    session.until("as Ctrl-C does")
    (pid,) = children(session.pid)
    os.kill(pid, 0)  # it runs still
    session.press("\x1b[B\r")  # down, enter
    session.until("failed")
    session.until("KeyboardInterrupt")
    session.press("q")
    session.until("\x1b[?1049l")
    assert session.end() == 128 + 2, "as a program that was interrupted"


def test_a_screen_that_is_left_or_killed_leaves_the_program_and_the_terminal(tmp_path) -> None:
    end = "input(); print('it goes', 'on', flush=True); sys.exit(5)"
    (tmp_path / "train.py").write_text(PROGRAM.format(end=end))
    for how in ("left", "killed"):
        session = Session(tmp_path, "--live", "--no-report", "--force", "train.py")
        session.until("Step time")
        if how == "left":
            session.press("q")
            session.until("close the screen")
            session.press("\x1b[B\x1b[B\r")
        else:
            (program,) = children(session.pid)
            (keeper,) = children(program)
            (ui,) = children(keeper)
            os.kill(ui, signal.SIGKILL)
        # the UI may have shown it too, and forgets what is typed while it gives the screen back
        session.until("to stderr", after="\x1b[?1049l")
        session.press("\n")  # what it waits for: the keys are its own now
        session.until("it goes on")
        assert session.end() == 5


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_without_a_terminal_it_says_so(tmp_path, program) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xlaprof", "run", "--live", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("TMUX")},
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("xlaprof: --live needs a terminal to draw in")
