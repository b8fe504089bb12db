"""Code around a recorded line: shown if it still is what was recorded, else not, and why not."""

import os
from pathlib import Path

import pytest

from xlaprof.analysis.model import Place
from xlaprof.pages.source import source

CODE = "def f(x):\n    y = x + 1\n    z = y.item()\n    return z\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(CODE)
    return path


def test_the_lines_around_with_the_line_marked(file: Path) -> None:
    found = source(Place(str(file), 3, "f", "z = y.item()"), around=1)
    assert (found.state, found.remark) == ("recorded", "")
    assert [(line.line, line.code, line.marked) for line in found.lines] == [
        (2, "    y = x + 1", False),
        (3, "    z = y.item()", True),
        (4, "    return z", False),
    ]


def test_a_name_relative_to_where_the_program_ran(file: Path) -> None:
    assert source(Place("train.py", 3, "f", "z = y.item()"), str(file.parent)).state == "recorded"
    assert source(Place("train.py", 3, "f", "z = y.item()")).state == "gone"


def test_a_line_that_moved_is_said_to_have_and_only_the_recorded_one_is_shown(file: Path) -> None:
    file.write_text(f"import torch\n\n{CODE}")
    found = source(Place(str(file), 3, "f", "z = y.item()"))
    assert (found.state, found.now) == ("changed", 5)
    assert [(line.line, line.code, line.marked) for line in found.lines] == [(3, "z = y.item()", True)]
    assert "has changed since the recording: the line is line 5 now" in found.remark


def test_a_line_that_is_no_more_or_there_twice(file: Path) -> None:
    file.write_text("x = 1\n")
    assert source(Place(str(file), 3, "f", "z = y.item()")).now == 0
    file.write_text("\n\n\n" + "z = y.item()\n" * 2)
    assert source(Place(str(file), 3, "f", "z = y.item()")).now == 0


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    for name in (tmp_path / "gone.py", "a\0b.py"):
        found = source(Place(str(name), 3, "f", "z = y.item()"))
        assert found.state == "gone", name
        assert found.lines[0].code == "z = y.item()"
        assert "cannot be read here" in found.remark


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# caf\xe9\nz = y.item()\n")
    assert source(Place(str(path), 2, "f", "z = y.item()")).state == "recorded"


def test_a_line_of_which_the_text_was_not_recorded_is_not_guessed(file: Path) -> None:
    found = source(Place(str(file), 3, "f"))
    assert (found.state, found.lines) == ("unknown", ())
    assert "does not hold the text of line 3" in found.remark
    assert source(Place()).remark == ""


def test_nothing_but_python_source_is_read_whatever_a_log_names_and_guesses(tmp_path: Path) -> None:
    key = tmp_path / "id_rsa"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n")
    (tmp_path / "train.py").symlink_to(key)
    for name in ("id_rsa", "train.py", str(key), "../" * 30 + str(key), "/dev/zero", "", "."):
        found = source(Place(name, 1, "f", "-----BEGIN OPENSSH PRIVATE KEY-----"), str(tmp_path))
        assert (found.state, found.now) == ("refused", 0), name
        assert [line.code for line in found.lines] == ["-----BEGIN OPENSSH PRIVATE KEY-----"]
        assert "is no .py file, and no other is read" in found.remark


def test_what_has_the_name_of_source_and_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "large.py").write_bytes(b"z = y.item()\n" + b"#" * (4 << 20))
    for name in ("pipe.py", "folder.py", "loop.py", "large.py"):
        assert source(Place(name, 1, "f", "z = y.item()"), str(tmp_path)).state == "gone", name


def test_source_behind_a_link_is_read(file: Path) -> None:
    (file.parent / "link.py").symlink_to(file)
    assert source(Place("link.py", 3, "f", "z = y.item()"), str(file.parent)).state == "recorded"
