"""``xlaprof live`` refuses in one line, before it takes the screen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xlaprof import cli

from .training import Training


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What live says on stderr where it refuses, with exit code 2."""
    code = cli.main(["live", *args])
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("xlaprof: ")
    assert err.count("\n") == 1
    return err


def test_a_directory_in_which_nobody_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{tmp_path} has no logs of ranks: record into it first" in refused(capsys, str(tmp_path), "--no-wait")
    assert "the terminal UI needs a terminal to draw in" in refused(capsys, str(tmp_path)), "else it waits"


def test_garbage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(os.urandom(70_000))
    said = refused(capsys, str(path))
    assert f"{path} is no recording that xlaprof reads (tried: xlaprof log (events as lines of JSON" in said


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.log"
    path.touch(mode=0o000)
    assert f"cannot read {path}: Permission denied" in refused(capsys, str(path))


def test_a_log_that_does_not_exist_and_is_not_to_be_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.log"
    assert f"{path} does not exist: record into it first" in refused(capsys, str(path), "--no-wait")


def test_a_log_that_cannot_come_to_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "typo" / "run.log"
    assert f"neither does its directory {tmp_path / 'typo'}" in refused(capsys, str(path))
    (tmp_path / "run.log").symlink_to("nowhere")
    assert "is a link to nothing" in refused(capsys, str(tmp_path / "run.log"))


def test_no_terminal_points_at_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.log"
    story = Training(path)
    story.end()
    assert f"the terminal UI needs a terminal to draw in; without one: xlaprof report {path}" in refused(
        capsys, str(path)
    )


def test_refusing_is_quick_and_loads_no_user_interface(tmp_path: Path) -> None:
    code = (
        "import sys; from xlaprof import cli; code = cli.main(sys.argv[1:]); "
        "loaded = {'textual', 'torch', 'jax'} & set(sys.modules); assert not loaded, loaded; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "live", str(tmp_path), "--no-wait"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    expected = f"xlaprof: {tmp_path} has no logs of ranks: record into it first "
    assert (done.stderr[: len(expected)], done.stderr.count("\n")) == (expected, 1)


def test_exploring_needs_a_terminal_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Training(tmp_path / "run.log")
    story.train(3)
    story.end()
    assert cli.main(["tui", str(tmp_path / "run.log")]) == 2
    assert "needs a terminal to draw in; without one: xlaprof report" in capsys.readouterr().err
