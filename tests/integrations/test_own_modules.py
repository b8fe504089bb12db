"""Tests with files beside them that are named like modules of xlaprof: they import what they import without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = ("-p", "xlaprof.integrations.pytest_plugin")
HEAD = "import json, sys, pytest\nNAMES = {names!r}\n"

ASKS = """
def asked(first):
    for name in NAMES:
        print("ASKED", first, name, getattr(__import__(name), "is_the_tests_own", False))

def test_before():
    asked("before")

@pytest.mark.xlaprof(max_recompiles=0)
def test_recorded():
    if "xlaprof" in sys.modules:
        import xlaprof
        with xlaprof.StepTrace("train", step_num=0):
            pass
    asked("recorded")

@pytest.mark.xlaprof(max_steps_of_nothing=1)
def test_marked_wrong():
    pass

def test_after():
    asked("after")
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "COLUMNS": "200"}
    command = [sys.executable, "-P", "-m", "pytest", "-s", "-p", "no:cacheprovider", *options, "tests"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The top-level modules that xlaprof brings in where a test is recorded, and some that pytest has itself."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "tests").mkdir()
    tells = "\ndef teardown_module():\n    print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
    (folder / "tests" / "test_it.py").write_text(HEAD.format(names=[]) + ASKS + tells)
    loaded = []
    for options in (PLUGIN, ()):
        lines = run(folder, *options).stdout.splitlines()
        loaded.append(next(set(line.partition("LOADED")[2].split()) for line in lines if "LOADED" in line))
    brought = loaded[0] - loaded[1] - {"xlaprof"}
    assert {"msgspec", "asyncio"} <= brought
    return sorted(brought | {"tokenize", "gzip", "platform", "queue", "html"})


@pytest.mark.parametrize("first", ["", "for name in NAMES:\n    __import__(name)\n"], ids=["late", "at once"])
def test_tests_import_the_files_beside_them(tmp_path: Path, names: list[str], first: str) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in names:
        (tests / f"{name}.py").write_text("is_the_tests_own = True\n")
    (tests / "test_it.py").write_text(HEAD.format(names=names) + first + ASKS)
    alone, ours = run(tmp_path), run(tmp_path, *PLUGIN)
    answers = [
        [line[line.index("ASKED") :] for line in done.stdout.splitlines() if "ASKED" in line] for done in (alone, ours)
    ]
    assert len(answers[0]) == 3 * len(names), alone.stdout + alone.stderr
    assert answers[1] == answers[0], ours.stdout + ours.stderr
    assert sum(line.endswith("True") for line in answers[0]) > 0.8 * len(answers[0])
    assert "1 failed, 3 passed" in ours.stdout, ours.stdout  # the test with the wrong marker
    assert "max_steps_of_nothing" in ours.stdout
    assert "INTERNALERROR" not in ours.stdout
