"""Whatever a file holds, reading it yields the events that are there, says what is not, and never crashes."""

import contextlib
import gzip
import json
import os
import random
import tempfile
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xlaprof
from xlaprof import log as logs
from xlaprof.events import (
    SCHEMA,
    AnyEvent,
    Barrier,
    Change,
    Compile,
    Counters,
    End,
    Event,
    Execute,
    Frame,
    Header,
    Scope,
    Stack,
    Step,
    Text,
    Thread,
    TransferFromDevice,
)
from xlaprof.log import Lines, LogError, LogReader, Tail, read


def header(**changes: object) -> Header:
    fields: dict[str, object] = {"schema": SCHEMA, "pid": 7, "mono_ns": 1_000, "unix_ns": 5_000_000}
    return Header(**(fields | changes))  # type: ignore[arg-type]


GOOD: list[AnyEvent] = [
    header(versions={"torch": "2.13.0"}, argv=["train.py", "--name=é 名"]),
    Thread(1, "MainThread"),
    Text(1, 'quote " and \\ and \u2028 and 名前'),
    Text(2, "/home/me/train.py"),
    Stack(1, [Frame(2, 12, 1, 1), Frame(2, 3, 1)]),
    Scope(1, 2_000, 500, meta={"layer": 3, "lr": 0.1, "on": True, "none": None, "text": "x"}),
    Compile(2_100, 50, 1, "ab", 3, 2, 1, 1, change=Change("shape", "f32[8]", "f32[5]", "input 0")),
    Barrier(2_200, 10, "sync", 1),
    Execute(1, 1, 2_210, 2_220, 2_300),
    TransferFromDevice(2_310, 100, 90, 4, 1, 1),
    Step(1, 0, 2_000, 420),
    Counters(2_430, {"CompileTime": 1}, {"CompileTime": 5e-8}),
    End(2_440),
]
ENCODED = [msgspec.json.encode(event) + b"\n" for event in GOOD]
WHOLE = b"".join(ENCODED)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.log"
    path.write_bytes(WHOLE)
    return path


def test_a_good_log_is_read_whole_and_without_a_word(log: Path) -> None:
    reader = read(log)
    assert reader.header == GOOD[0]
    assert list(reader) == GOOD
    assert reader.notes == ()


def test_cut_anywhere_the_beginning_is_read_and_the_cut_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    ends = list(accumulate(map(len, ENCODED)))
    for cut in range(len(WHOLE)):
        path.write_bytes(WHOLE[:cut])
        # a line that lacks nothing but its line feed is whole
        whole = sum(cut >= end - 1 for end in ends)
        if not whole:
            with pytest.raises(LogError) as error:
                read(path)
            what = f"ends inside its first line ({cut} bytes)" if cut else "is empty"
            assert str(error.value).startswith(f"{path} {what}")
            continue
        reader = read(path)
        assert list(reader) == GOOD[:whole]
        torn = max(0, cut - ends[whole - 1])
        assert len(reader.notes) == (torn > 0)
        assert not torn or f"the last line is torn ({torn} bytes" in reader.notes[0]


@given(st.lists(st.integers(1, 200), max_size=30))
def test_lines_come_out_the_same_however_the_bytes_arrive(sizes: list[int]) -> None:
    lines = Lines()
    events: list[AnyEvent] = []
    position = 0
    for size in sizes:
        events += lines.feed(WHOLE[position : position + size])
        position += size
    events += lines.feed(WHOLE[position:])
    assert events == GOOD
    assert lines.finish() == []
    assert lines.notes() == []


@given(st.binary(max_size=400), st.integers(0, len(GOOD)))
def test_foreign_bytes_in_the_middle_cost_nothing_but_themselves(junk: bytes, where: int) -> None:
    lines = Lines()
    data = b"".join(ENCODED[:where]) + junk + b"\n" + b"".join(ENCODED[where:])
    events = lines.feed(data) + lines.finish()
    assert [event for event in events if event in GOOD] == GOOD
    if junk.strip() and len(events) == len(GOOD):
        assert lines.garbage + sum(lines.unknown.values()) >= 1


@given(st.data())
def test_flipped_bytes_never_crash_a_reader(data: st.DataObject) -> None:
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 20))):
        damaged[data.draw(st.integers(0, len(WHOLE) - 1))] = data.draw(st.integers(0, 255))
    lines = Lines()
    lines.feed(bytes(damaged))
    lines.finish()
    assert all(isinstance(note, str) for note in lines.notes())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n\n\n", "is not an xlaprof log"),
        (b"hello\nworld\n", "is not an xlaprof log"),
        (b'{"traceEvents": []}\n', "is not an xlaprof log"),
        (b"[1, 2, 3]\n", "is not an xlaprof log"),
        (ENCODED[2] + ENCODED[3], "has no header"),
        (bytes(10_000), "ends inside its first line"),
        (random.Random(1).randbytes(100_000), "is not an xlaprof log"),
        (b"[" * 1_000_000 + b"\n", "is not an xlaprof log"),
        (b"\xff\xfe" + "{}\n".encode("utf-16-le"), "is not an xlaprof log"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(content)
    with pytest.raises(LogError, match=says) as error:
        list(read(path))
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is a directory"):
        read(tmp_path)
    with pytest.raises(LogError, match="does not exist: record into it first"):
        read(tmp_path / "missing.log")
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="Not a directory"):
        read(tmp_path / "file" / "run.log")
    with pytest.raises(LogError, match="null byte"):
        read("a\0b")
    with pytest.raises(LogError, match="cannot read"):
        read("/proc/self/mem")
    os.mkfifo(tmp_path / "pipe")
    for once in (tmp_path / "pipe", "/dev/null"):  # and no wait for somebody who writes into the pipe
        with pytest.raises(LogError, match="read once only: put it into a file"):
            read(once)
        with pytest.raises(LogError, match="read once only"):
            Tail(once).poll()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(log: Path) -> None:
    log.chmod(0)
    with pytest.raises(LogError, match="Permission denied"):
        read(log)


def test_a_newer_log_is_read_as_far_as_it_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    lines = [
        msgspec.json.encode(header(schema=SCHEMA + 2)),
        b'{"k":"quantum","t":1}',
        b'{"k":"quantum","t":2}',
        b'{"k":"text","id":1,"text":"x","colour":"red"}',
        b'{"k":"scope","name":"now a string","t":1,"dur":2}',
        b'{"k":"end","t":9}',
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    reader = read(path)
    assert list(reader) == [header(schema=SCHEMA + 2), Text(1, "x"), End(9)]
    newer, unknown, garbage = reader.notes
    assert f"newer xlaprof (schema {SCHEMA + 2}, this one reads {SCHEMA})" in newer
    assert unknown == "skipped 2 events of unknown kinds: quantum (2)"
    assert garbage == "skipped 1 event with values that cannot be: scope (1)"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pid", -5),
        ("mono_ns", 10**40),
        ("unix_ns", "noon"),
        ("schema", None),
        ("argv", [7]),
        ("device", 3),
        ("world", -1),
    ],
)
def test_a_header_with_a_value_that_cannot_be_costs_that_value_only(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "run.log"
    said = {**msgspec.json.decode(ENCODED[0]), field: value}
    path.write_bytes(json.dumps(said).encode() + b"\n" + b"".join(ENCODED[1:]))
    reader = read(path)
    head, *rest = list(reader)
    assert rest == GOOD[1:]
    assert isinstance(head, Header)
    assert reader.notes == (f"left out of its header, as they cannot be: {field}",)
    others = {one for one in Header.__struct_fields__ if one != field}
    assert all(getattr(head, one) == getattr(GOOD[0], one) for one in others)


def test_a_line_without_end_is_skipped_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST_LINE", 10_000)
    monkeypatch.setattr(logs, "CHUNK", 1_000)
    path = tmp_path / "run.log"
    path.write_bytes(
        b"".join(ENCODED[:5]) + b'{"k":"text","id":9,"text":"' + b"x" * 1_000_000 + b'"}\n' + b"".join(ENCODED[5:])
    )
    reader = read(path)
    events = []
    for event in reader:
        events.append(event)
        assert sum(map(len, reader._lines._parts)) <= 11_000
    assert events == GOOD
    assert reader.notes == ("skipped 1 line that is no event",)


def test_a_log_with_a_hole_of_zeros_left_by_a_crashed_machine(log: Path) -> None:
    log.write_bytes(b"".join(ENCODED[:4]) + bytes(4096) + b"\n" + b"".join(ENCODED[4:]))
    reader = read(log)
    assert list(reader) == GOOD
    assert reader.notes == ("skipped 1 line that is no event",)


def test_gzip_is_read_as_it_is_and_a_truncated_one_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    many = WHOLE + b"".join(ENCODED[5:6]) * 20_000
    compressed = gzip.compress(many)
    path.write_bytes(compressed)
    assert len(list(read(path))) == len(GOOD) + 20_000
    path.write_bytes(compressed[: len(compressed) // 2])
    reader = read(path)
    events = list(reader)
    assert events[: len(GOOD)] == GOOD
    assert any("compressed file is truncated" in note for note in reader.notes)
    path.write_bytes(b"\x1f\x8bnot gzip at all")
    with pytest.raises(LogError, match="cannot read"):
        read(path)


@given(st.integers(0, 2_000), st.binary(min_size=1, max_size=50))
def test_damaged_gzip_never_crashes_a_reader(where: int, junk: bytes) -> None:
    compressed = gzip.compress(WHOLE * 20)
    where %= len(compressed)
    with tempfile.NamedTemporaryFile() as file:
        file.write(compressed[:where] + junk + compressed[where + len(junk) :])
        file.flush()
        with contextlib.suppress(LogError), read(file.name) as reader:
            assert all(isinstance(event, Event) for event in reader)


# -- following ------------------------------------------------------------------------------------------------------


def test_a_growing_log_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    following = Tail(path)
    assert following.poll() == []  # it does not exist yet
    seen: list[AnyEvent] = []
    with path.open("wb", buffering=0) as file:
        assert following.poll() == []  # it is empty
        for position in range(0, len(WHOLE), 37):
            file.write(WHOLE[position : position + 37])
            whole = WHOLE[: position + 37].count(b"\n")
            seen += following.poll()
            assert seen == GOOD[:whole]
            assert following.notes == ()
    assert following.poll() == []
    assert following.header == GOOD[0]
    following.close()


def test_following_a_recording_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    following = Tail(path)
    seen: list[AnyEvent] = []
    with xlaprof.record(path):
        with xlaprof.Trace("work"):
            pass
        while not any(isinstance(event, Scope) for event in seen):
            seen += following.poll()
    while not any(isinstance(event, End) for event in seen):
        seen += following.poll()
    assert seen == list(read(path))
    following.close()


@pytest.mark.parametrize("how", ["truncated", "truncated and longer", "replaced", "deleted and made again"])
def test_a_log_begun_anew_comes_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(WHOLE)
    following = Tail(path)
    assert following.poll() == GOOD
    assert following.poll() == []
    second: list[AnyEvent] = [header(pid=8), Text(1, "second run")]
    if how == "truncated and longer":
        second += [Text(i, "x" * 50) for i in range(2, 100)]
    content = b"".join(msgspec.json.encode(event) + b"\n" for event in second)
    if how == "replaced":
        other = tmp_path / "other"
        other.write_bytes(content)
        other.rename(path)
    else:
        if how == "deleted and made again":
            path.unlink()
            assert following.poll() == []
        path.write_bytes(content)  # truncates, and keeps the inode
    assert following.poll() == second
    assert following.header == second[0]
    following.close()


def test_following_what_is_no_log_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"hello\n")
    following = Tail(path)
    with pytest.raises(LogError, match="is not an xlaprof log"):
        following.poll()
    following.close()
    with pytest.raises(LogError, match="is a directory"):
        Tail(tmp_path).poll()


def test_a_poll_takes_no_more_than_it_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(WHOLE + b"".join(ENCODED[5:6]) * 10_000)
    following = Tail(path)
    polls = []
    while events := following.poll(limit=100_000):
        polls.append(len(events))
    assert sum(polls) == len(GOOD) + 10_000
    assert len(polls) > 5
    following.close()


def test_a_reader_may_be_left_early(log: Path) -> None:
    with LogReader(log) as reader:
        assert next(iter(reader)) == GOOD[0]
