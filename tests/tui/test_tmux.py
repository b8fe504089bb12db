"""For real: ``xlaprof live`` in a terminal (tmux), beside a training on the xla device that is still running."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="NO TMUX: the terminal UI was not tried in a real terminal (install tmux)"
)

PATIENCE_S = 120.0  # of a loaded machine; what is waited for usually comes within seconds


class Terminal:
    """A tmux server of its own with one window, 120 x 40, in which ``command`` runs."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self._server = f"xlaprof-{uuid.uuid4().hex[:12]}"
        line = f'{shlex.join(command)}; echo "left with $?"; read -r _'
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "-c", str(cwd), line)

    def tmux(self, *args: str) -> str:
        done = subprocess.run(["tmux", "-L", self._server, *args], capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def until(self, *texts: str) -> str:
        """The screen, once it shows all of ``texts``."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            shown = self.screen()
            missing = [text for text in texts if text not in shown]
            if not missing:
                return shown
            assert time.monotonic() < deadline, f"never saw {missing}:\n{shown}"

    def kill(self) -> None:
        """Have the command end without a chance to put anything in order."""
        shell = int(self.tmux("display-message", "-p", "#{pane_pid}"))
        (command,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        os.kill(int(command), signal.SIGKILL)

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._server, "kill-server"], capture_output=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """``xlaprof live run.log``, waiting for a log that nobody writes yet."""
    opened = Terminal([sys.executable, "-m", "xlaprof", "live", "run.log"], tmp_path)
    yield opened
    opened.close()


def running(script: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of this folder, recorded into run.log, until its stdin is closed."""
    for needed in ("torch", "jax"):
        pytest.importorskip(needed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PJRT_DEVICE": "CPU"}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name(script)), "run.log"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        env=environment,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The training of trained.py."""
    yield from running("trained.py", tmp_path)


@pytest.fixture
def compiled(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program under torch.compile of compiled.py."""
    yield from running("compiled.py", tmp_path)


@pytest.fixture
def jitted(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The JAX program of jitted.py."""
    yield from running("jitted.py", tmp_path)


def planted_line(script: str = "trained.py") -> int:
    code = Path(__file__).with_name(script).read_text().splitlines()
    return next(number for number, line in enumerate(code, start=1) if "# here the planted" in line)


def test_a_recompilation_is_seen_while_the_training_runs(terminal: Terminal, request: pytest.FixtureRequest) -> None:
    terminal.until("waiting  for run.log to appear")
    training: subprocess.Popen[bytes] = request.getfixturevalue("training")
    shown = terminal.until("recompile", f"trained.py:{planted_line()}", "train steps")
    assert training.poll() is None, "the training still runs"
    assert "running" in shown or "compiling" in shown
    assert "batch = torch.ones(rows, 16)" in shown

    assert training.stdin is not None
    training.stdin.close()
    terminal.until("● finished")

    terminal.press("?")
    terminal.until("select a row; scroll other panels")
    terminal.press("Escape")
    terminal.until("● finished")
    terminal.press("q")
    shown = terminal.until("left with 0")
    assert "Traceback" not in shown


@pytest.mark.slow
def test_a_graph_break_is_seen_while_the_program_runs(terminal: Terminal, compiled: subprocess.Popen[bytes]) -> None:
    line = planted_line("compiled.py")
    terminal.until("graph break", f"compiled.py:{line}", "call step")
    terminal.press("8")
    terminal.until("Functions  torch.compile:", "fast  compiled.py:", f"break at compiled.py:{line}")
    assert compiled.poll() is None, "the program still runs"
    ends(terminal, compiled)


@pytest.mark.slow
def test_a_program_that_jax_makes_again_is_seen_while_it_runs(
    terminal: Terminal, jitted: subprocess.Popen[bytes]
) -> None:
    line = planted_line("jitted.py")
    terminal.until("recompile", f"jitted.py:{line}", "train steps")
    terminal.press("8")
    terminal.until("loss (JAX)  made again in step", "f32[8,4] → f32[9,4]")
    assert jitted.poll() is None, "the program still runs"
    ends(terminal, jitted)


def ends(terminal: Terminal, program: subprocess.Popen[bytes]) -> None:
    """The program ends, and the screen says so."""
    assert program.stdin is not None
    program.stdin.close()
    terminal.until("● finished")
    assert program.wait(PATIENCE_S) == 0
    terminal.press("q")
    assert "Traceback" not in terminal.until("left with 0")


def test_leaving_the_screen_does_nothing_to_the_program(terminal: Terminal, jitted: subprocess.Popen[bytes]) -> None:
    terminal.until("train step")
    terminal.press("q")
    terminal.until("left with 0")
    assert jitted.poll() is None


#: programs of each kind, one of them each time
EACH = pytest.mark.parametrize(
    ("name", "step"),
    [
        ("jitted", "train step"),
        pytest.param("training", "train step", marks=pytest.mark.slow),
        pytest.param("compiled", "call step", marks=pytest.mark.slow),
    ],
)


@EACH
def test_a_killed_screen_does_nothing_to_the_program(
    name: str, step: str, terminal: Terminal, request: pytest.FixtureRequest
) -> None:
    program: subprocess.Popen[bytes] = request.getfixturevalue(name)
    terminal.until(step)
    terminal.kill()
    terminal.until("left with 137")
    assert program.poll() is None
    assert program.stdin is not None
    program.stdin.close()
    assert program.wait(PATIENCE_S) == 0


@EACH
def test_a_killed_program_is_lost(name: str, step: str, terminal: Terminal, request: pytest.FixtureRequest) -> None:
    program: subprocess.Popen[bytes] = request.getfixturevalue(name)
    terminal.until(step)
    program.send_signal(signal.SIGKILL)
    terminal.until("● lost", f"process {program.pid} ended without closing its log")


def test_the_terminal_may_shrink_and_grow(terminal: Terminal) -> None:
    terminal.until("waiting  for run.log to appear")
    for width, height in ((80, 24), (30, 6), (200, 50), (120, 40)):
        terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
    terminal.until("Start a program that records there")
    terminal.press("C-c")
    terminal.until("left with 0")
