"""Is the process that writes the log still there? Asked of real processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time

import pytest

from xlaprof.tui.process import look

HERE = platform.node()


def test_this_process_is_alive() -> None:
    assert look(os.getpid(), HERE, time.time()) == "alive"


def test_a_process_that_was_reaped_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert look(child.pid, HERE, time.time()) == "gone"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc here: the state cannot be read")
def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and left unreaped
    assert look(child.pid, HERE, time.time()) == "gone"
    child.wait()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc here: the start time cannot be read")
def test_a_pid_that_was_given_to_another_process_since_is_gone() -> None:
    before_we_started = time.time() - 3600 * 24 * 365
    assert look(os.getpid(), HERE, before_we_started) == "gone"


def test_another_machines_processes_are_not_ours_to_judge() -> None:
    assert look(os.getpid(), "another-host", time.time()) == "unknown"
    assert look(0, HERE, time.time()) == "unknown"
