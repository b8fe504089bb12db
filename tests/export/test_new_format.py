"""CONTRIBUTING.md on a new export format, followed to the letter, in a folder apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from contributing import add_module, blocks, examples

from xlaprof.cli import main
from xlaprof.export import formats

FORMAT, TEST = blocks("Adding an export format")


@pytest.fixture(autouse=True)
def _added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(formats, "jsonl", FORMAT, tmp_path / "formats", monkeypatch)


def test_its_test_passes(tmp_path: Path) -> None:
    (test,) = examples(TEST)
    test(tmp_path)


def test_the_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert "the format: html, jsonl, tensorboard" in capsys.readouterr().out
