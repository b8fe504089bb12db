"""The verb: where it writes, what it refuses, what it makes of damaged logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from story import MS, save

from xlaprof import cli
from xlaprof import events as ev
from xlaprof.errors import UserError
from xlaprof.log import CHUNK

from .ask import export, profile
from .training import START, Training

RUN = "run-2023-11-14_22-13-20"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    story = Training()
    story.train(5)
    return save(story.end(), tmp_path / "run.log")


def run(*args: object) -> int:
    return cli.main(["export", *map(str, args)])


def test_it_says_what_it_wrote_and_how_to_look_at_it(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "log dir"
    assert run(log, "--to", "tensorboard", "-o", out) == 0
    said = capsys.readouterr()
    assert str(out / "plugins" / "profile" / RUN / "box.xplane.pb") in said.out
    assert f"tensorboard --logdir '{out}' --host 127.0.0.1" in said.out
    assert said.err == ""
    assert sorted(os.listdir(out)) == ["plugins", RUN]  # and nothing half done


def test_json_names_the_files(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log, "--to", "tensorboard", "-o", tmp_path / "out", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["steps"], said["executions"]) == ("tensorboard", 5, 5)
    assert all(Path(file).is_file() for file in said["files"])


def test_a_run_is_not_overwritten_without_force(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(log, "--to", "tensorboard", "-o", out) == 0
    folder = out / "plugins" / "profile" / RUN
    (folder / "ALL_HOSTS.op_stats_v2.pb").write_bytes(b"what XProf kept of it")
    capsys.readouterr()
    assert run(log, "--to", "tensorboard", "-o", out) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(folder) in line
    assert "--force" in line
    assert run(log, "--to", "tensorboard", "-o", out, "--force") == 0
    assert os.listdir(folder) == ["box.xplane.pb"]  # with nothing that XProf kept of the old one


def test_a_log_whose_name_is_another_folder_is_refused_and_nothing_is_deleted(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / "plugins" / "profile").mkdir(parents=True)
    kept = [tmp_path / "mine", out / "mine", out / "plugins" / "mine", out / "plugins" / "profile" / "mine"]
    for file in kept:
        file.touch()
    lines = log.read_bytes().replace(b'"unix_ns":', b'"unix_ns":-')  # no moment: the name is the log's alone
    for name in ("...log", "..log", "....log.gz"):
        (tmp_path / name).write_bytes(lines)
        assert run(tmp_path / name, "--to", "tensorboard", "-o", out, "--force") == 2
        assert "rename the log" in capsys.readouterr().err
        assert all(file.exists() for file in kept)
    (out / "mine.log").write_bytes(lines)
    assert run(out / "mine.log", "--to", "tensorboard", "-o", out, "--force") == 0
    assert all(file.exists() for file in kept)


def test_what_is_made_of_a_log_is_its_owners_alone(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(log, "--to", "tensorboard", "-o", out) == 0
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in files} == {0o700}


def test_another_log_is_another_run_of_the_same_directory(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    other = tmp_path / "other.log"
    other.write_bytes(log.read_bytes())
    assert run(log, "--to", "tensorboard", "-o", out) == 0
    assert run(other, "--to", "tensorboard", "-o", out) == 0
    assert sorted(os.listdir(out / "plugins" / "profile")) == ["other-2023-11-14_22-13-20", RUN]


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["--to", "nonsense", "-o", "out"], "unknown format 'nonsense': --to takes html, tensorboard"),
        (["--to", "tensorboard"], "-o/--out"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(
    args: list[str], hint: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(log, *args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert hint in line


def test_an_output_that_is_a_file(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.write_text("taken")
    assert run(log, "--to", "tensorboard", "-o", out) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(out) in line
    assert out.read_text() == "taken"


def test_a_full_disk_leaves_nothing_half_done(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # A limit on the size of files is a disk that is full, for one process.
    code = (
        "import resource, signal, sys; from xlaprof.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024));"
        f"sys.exit(main(['export', {str(log)!r}, '--to', 'tensorboard', '-o', {str(out)!r}]))"
    )
    # -B: CPython writes what it compiled for an import cut off at the limit, and every later process would read that
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"xlaprof: cannot write to {out}: ")
    assert os.listdir(out) == []


@pytest.mark.parametrize("content", [b"", b"\x00\xff garbage"], ids=["empty", "garbage"])
def test_a_log_from_which_nothing_can_be_read(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_bytes(content)
    assert run(tmp_path / "run.log", "--to", "tensorboard", "-o", tmp_path / "out") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out" / "plugins").exists()


def test_a_missing_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none.log", "--to", "tensorboard", "-o", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "none.log" in line


def test_a_torn_log_is_exported_as_far_as_it_goes(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(log.read_bytes()[:-150])
    assert run(log, "--to", "tensorboard", "-o", tmp_path / "out") == 0
    assert capsys.readouterr().err  # what was skipped is said


def test_a_page_says_what_is_torn_once_and_of_a_whole_log_nothing(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Training()
    story.train(2_000)  # more than one piece is read at once
    save(story.end(), log)
    assert log.stat().st_size > CHUNK
    assert run(log, "--to", "html", "-o", tmp_path / "whole.html") == 0
    assert capsys.readouterr().err == ""
    log.write_bytes(log.read_bytes()[:-150])
    assert run(log, "--to", "html", "-o", tmp_path / "torn.html") == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert "the last line is torn" in said


def test_a_log_that_ends_after_its_header(tmp_path: Path) -> None:
    written = export(Training().events[:1], tmp_path)
    assert (written.steps, written.executions) == (0, 0)
    assert len(written.notes) == 3
    assert profile(written).trace() == []


def test_a_log_without_a_header(tmp_path: Path) -> None:
    story = Training()
    story.train(5)
    read = profile(export(story.end()[1:], tmp_path)).overview()
    assert read.step_median == pytest.approx(10)


def test_steps_of_a_program_that_never_ran_on_a_device(tmp_path: Path) -> None:
    story = Training()
    for num in range(5):
        start = story.now
        story.spend(3)
        story.end_step("train", num, start)
    written = export(story.end(), tmp_path)
    assert any("no execution" in note for note in written.notes)
    assert [e["dur"] for e in profile(written).trace() if e["name"].startswith("train")] == pytest.approx([3000] * 5)


def test_a_log_with_a_second_recording_exports_the_first(tmp_path: Path) -> None:
    story = Training()
    story.train(5)
    first = story.end()
    other = msgspec.structs.replace(first[0], pid=8, mono_ns=START * 10)
    written = export([*first, other, *first[1:]], tmp_path)
    assert written.steps == 5
    assert any("more than one recording" in note for note in written.notes)


def test_what_the_recording_dropped_is_said(tmp_path: Path) -> None:
    story = Training()
    story.train(2)
    story.events.append(ev.Dropped(t=story.now, count=17, why="disk"))
    assert any("17" in note for note in export(story.end(), tmp_path).notes)


def test_a_span_that_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    story = Training()
    story.train(2)
    story.spend(200 * 86_400_000)
    with pytest.raises(UserError, match="200 days"):
        export(story.end(), tmp_path)


def test_without_tensorboard_the_way_out_is_named(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xlaprof.export.formats.tensorboard.find_spec", lambda name: None)
    assert run(log, "--to", "tensorboard", "-o", tmp_path / "out") == 2
    assert 'pip install "xlaprof[tensorboard]"' in capsys.readouterr().err


def test_it_needs_neither_torch_nor_jax_nor_xprof(log: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from xlaprof.cli import main;"
        f"main(['export', {str(log)!r}, '--to', 'tensorboard', '-o', {str(tmp_path / 'out')!r}]);"
        "print(sorted({'torch', 'jax', 'xprof', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


anything = st.integers(0, 2**60 - 1) | st.sampled_from([0, 1, START, START + MS, 2**31 - 1, 2**59, 2**60 - 1])
KINDS = [
    ev.Step,
    ev.StepDigest,
    ev.Scope,
    ev.Barrier,
    ev.Execute,
    ev.TransferFromDevice,
    ev.Hole,
    ev.Fallback,
    ev.Gc,
    ev.DataWait,
]


@st.composite
def damaged(draw: st.DrawFn) -> ev.Event:
    """An event whose numbers may be any that is read."""
    kind = draw(st.sampled_from(KINDS))
    numbers = {field.name: draw(anything) for field in msgspec.structs.fields(kind) if field.required}
    if kind is ev.Execute:
        numbers["end"] = max(numbers["start"], numbers["end"])
    numbers |= {
        name: draw(anything)
        for name in ("tid", "stack", "busy", "executions", "tracing", "execution", "device")
        if name in kind.__struct_fields__ and draw(st.booleans())
    }
    return kind(**numbers)


@given(events=st.lists(damaged(), max_size=30))
def test_no_numbers_crash_an_export(events: list[ev.Event], tmp_path_factory: pytest.TempPathFactory) -> None:
    story = Training()
    story.train(2)
    # A span that the format cannot hold is the one refusal.
    with suppress_message("106"):
        export([*story.end(), *events], tmp_path_factory.mktemp("out"))


@contextmanager
def suppress_message(part: str) -> Iterator[None]:
    """Let a user error pass if its message has ``part``."""
    try:
        yield
    except UserError as e:
        if part not in e.message:
            raise


def test_a_person_at_a_terminal_sees_what_is_being_done_with_a_long_log(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(log, "--to", "tensorboard", "-o", tmp_path / "quiet") == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("xlaprof.reports._LARGE", 0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert run(log, "--to", "tensorboard", "-o", tmp_path / "shown") == 0
    said = [line.removesuffix("\x1b[K") for line in capsys.readouterr().err.split("\r") if line]
    assert said == [
        "",
        "analysing",
        "writing the threads of the host",
        "writing 5 executions of device 0",
        "writing the curves of 5 steps",
        "",
    ]


def test_a_scope_of_an_impossible_time_is_left_out_and_those_around_it_are_not(tmp_path: Path) -> None:
    story = Training()
    story.train(6)
    name = story.text("broken")
    story.events.append(ev.Scope(name=name, t=2**61, dur=5))
    story.train(6, first=6)
    written = export(story.end(), tmp_path)
    assert "1 event left out: impossible times" in written.notes
    drawn = [event["name"] for event in profile(written).trace()]
    assert (drawn.count("forward"), drawn.count("broken")) == (12, 0)
