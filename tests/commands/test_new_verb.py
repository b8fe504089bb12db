"""CONTRIBUTING.md on a new verb, followed to the letter, in a folder apart."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from contributing import blocks, examples

from xlaprof import commands
from xlaprof.cli import main

VERB, TEST = blocks("Adding a CLI verb")


@pytest.fixture(autouse=True)
def _added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "verbs"
    folder.mkdir()
    (folder / "count.py").write_text(VERB)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"{commands.__name__}.count", raising=False)


@pytest.mark.parametrize("number", range(TEST.count("def test_")))
def test_its_tests_pass(number: int, request: pytest.FixtureRequest) -> None:
    test = examples(TEST)[number]
    test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})


def test_the_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "count    Count the events of a recording\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["count", "--help"])
    assert "xlaprof count run.log" in capsys.readouterr().out
