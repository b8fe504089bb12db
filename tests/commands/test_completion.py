"""xlaprof completion: what the Tab key offers, asked as the shells ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xlaprof.cli import main, verbs
from xlaprof.commands.completion import SHELLS


def offered(line: str, folder: Path) -> set[str]:
    """What is offered at the end of ``line``, by the protocol of argcomplete's shell functions."""
    answer = folder / ".answer"
    answer.write_text("")
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "xlaprof"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {word.strip() for word in answer.read_text().splitlines()}


def test_verbs_options_and_files_are_offered(tmp_path: Path) -> None:
    (tmp_path / "run.log").touch()
    assert {"report", "run"} == offered("xlaprof r", tmp_path)
    assert set(verbs()) <= offered("xlaprof ", tmp_path)
    assert "--since-step" in offered("xlaprof report --s", tmp_path)
    assert "--max-recompiles" in offered("xlaprof check run.log --max-r", tmp_path)
    assert offered("xlaprof report ru", tmp_path) == {"run.log"}
    assert offered("xlaprof report run.log --fail-on ", tmp_path) >= {"low", "medium", "high"}
    assert set(SHELLS) <= offered("xlaprof completion ", tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_registers_the_command(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "xlaprof" in script.read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)


def test_bash_completes_at_tab(tmp_path: Path) -> None:
    command = tmp_path / "xlaprof"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m xlaprof "$@"\n')
    command.chmod(0o755)
    tab = (
        'eval "$(xlaprof completion bash)"; COMP_LINE="xlaprof exp"; COMP_POINT=11; COMP_TYPE=9; '
        'COMP_WORDS=(xlaprof exp); COMP_CWORD=1; _python_argcomplete xlaprof exp xlaprof; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(["bash", "-c", tab], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["explain", "export"]


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
