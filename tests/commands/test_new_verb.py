"""CONTRIBUTING.md on a new verb, followed to the letter, in a folder apart."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from contributing import add_module, blocks, examples

from xlaprof import commands
from xlaprof.cli import main

VERB, TEST = blocks("Adding a CLI verb")


@pytest.fixture(autouse=True)
def _added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(commands, "count", VERB, tmp_path / "verbs", monkeypatch)


@pytest.mark.parametrize("number", range(TEST.count("def test_")))
def test_its_tests_pass(number: int, request: pytest.FixtureRequest) -> None:
    test = examples(TEST)[number]
    test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})


def test_the_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert re.search(r"^  count +Count the events of a recording$", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(SystemExit):
        main(["count", "--help"])
    assert "xlaprof count run.log" in capsys.readouterr().out
