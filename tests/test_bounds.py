"""What cannot be is refused where it is read, and said; what is too long is cut where it is recorded and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from story import MS, clean, save

import xlaprof
from xlaprof import log as logs
from xlaprof.bounds import LONGEST, bounded, cut
from xlaprof.events import Event, Execute, Header, Scope, Step, Text, TransferFromDevice
from xlaprof.recording.logfile import has_long_line, line, rank_and_world
from xlaprof.sources.files import Checked


def read(path: Path, *lines: bytes) -> tuple[list[Event], tuple[str, ...]]:
    """The events of a log with these lines behind a good header, and what its reader says."""
    header = msgspec.json.encode(Header(schema=1, pid=1, mono_ns=0, unix_ns=0))
    path.write_bytes(b"\n".join((header, *lines)) + b"\n")
    reader = logs.read(path)
    return list(reader)[1:], reader.notes


@pytest.mark.parametrize(
    "event",
    [
        '{"k":"step","name":1,"num":1,"t":-1,"dur":1}',
        '{"k":"step","name":1,"num":1,"t":1,"dur":-1}',
        '{"k":"step","name":-1,"num":1,"t":1,"dur":1}',
        '{"k":"step","name":1,"num":1,"t":1,"dur":1152921504606846976}',
        '{"k":"step","name":1,"num":18446744073709551616,"t":1,"dur":1}',
        '{"k":"step","name":2147483648,"num":1,"t":1,"dur":1}',
        '{"k":"dropped","t":1,"count":%s,"why":"disk"}' % ("9" * 4_000),
        '{"k":"h2d","t":1,"dur":1,"bytes":-4}',
        '{"k":"counters","t":1,"counts":{},"seconds":{"x":1e300}}',
        '{"k":"digest","name":1,"num":1,"t":1,"dur":1,"scopes":{"1":[]}}',
        '{"k":"digest","name":1,"num":1,"t":1,"dur":1,"reads":{"1:1":[1,2,3,4]}}',
        '{"k":"live","t":1,"tensors":1,"bytes":1,"held":[[1]]}',
        '{"k":"execute","seq":1,"program":1,"t":5,"start":5,"end":4}',
    ],
)
def test_a_value_that_cannot_be_is_refused_and_said(event: str, tmp_path: Path) -> None:
    events, notes = read(tmp_path / "run.log", event.encode(), b'{"k":"text","id":1,"text":"x"}')
    assert events == [Text(1, "x")]
    assert notes == (f"skipped 1 event with values that cannot be: {json.loads(event)['k']} (1)",)


def test_the_largest_values_are_read(tmp_path: Path) -> None:
    most = (1 << 60) - 1
    event = TransferFromDevice(t=most, dur=most, wait=most, bytes=most, op=(1 << 31) - 1, stack=(1 << 31) - 1)
    step = Step(name=0, num=-most, t=0, dur=0, meta={"x": (1 << 63) - 1, "y": -(1 << 63), "z": 1e308})
    assert read(tmp_path / "run.log", msgspec.json.encode(event), msgspec.json.encode(step)) == ([event, step], ())


def test_long_texts_and_lists_are_cut_when_read(tmp_path: Path) -> None:
    text = {"k": "text", "id": 1, "text": "n" * 10_000_000}
    frames = {"k": "stack", "id": 1, "frames": [[1, 2, 3]] * 100_000}
    (name, stack), notes = read(tmp_path / "run.log", json.dumps(text).encode(), json.dumps(frames).encode())
    assert name.text == "n" * (LONGEST - 27) + "... (10,000,000 characters)"  # type: ignore[attr-defined]
    assert len(stack.frames) == LONGEST  # type: ignore[attr-defined]
    assert notes == ("cut texts or lists of over 4,096 characters or entries in 2 events",)


def test_long_texts_are_cut_when_recorded(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    with xlaprof.record(log):
        for _ in range(3):
            with xlaprof.Trace("scope " * 1_000_000, payload="p" * 1_000_000):
                pass
    reader = logs.read(log)
    events = list(reader)
    assert reader.notes == ()  # nothing had to be cut any more
    assert log.stat().st_size < 12 * LONGEST
    (name,) = [event.text for event in events if isinstance(event, Text) and event.text.startswith("scope scope")]
    assert len(name) == LONGEST
    assert name.endswith("... (6,000,000 characters)")
    scopes = [event for event in events if isinstance(event, Scope)]
    assert [str(event.meta["payload"])[-26:] for event in scopes] == ["... (1,000,000 characters)"] * 3


@given(st.text() | st.integers(LONGEST - 5, LONGEST + 5).map(lambda size: "é" * size))
def test_what_was_cut_is_not_cut_again(text: str) -> None:
    once = cut(text)
    assert len(once) <= LONGEST
    assert cut(once) == once
    assert bounded([text, {text: [text]}]) == [once, {once: [once]}]


@given(st.lists(st.integers(0, 3 * LONGEST), max_size=40))
def test_a_long_line_is_never_overlooked(sizes: list[int]) -> None:
    lines = b"".join(b"x" * size + b"\n" for size in sizes)
    if any(size > LONGEST for size in sizes):
        assert has_long_line(lines)
    if all(size < LONGEST // 2 for size in sizes):
        assert not has_long_line(lines)


def test_an_event_that_fits_is_written_as_it_is() -> None:
    event = Scope(1, 2, 3, meta={"x": "y" * 1_000})
    assert line(event) == msgspec.json.encode(event) + b"\n"


@pytest.mark.parametrize(("rank", "world"), [("-1", "4"), ("4", "4"), ("0", "0"), ("9" * 30, "2"), ("x", "2")])
def test_a_rank_that_cannot_be_is_none(rank: str, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    assert rank_and_world() == (0, 1)


class Foreign:
    """What a source of another package may yield: structs are not checked when they are made."""

    notes = ("its own",)

    def __init__(self, breaks: bool = False) -> None:
        self.breaks = breaks

    def __iter__(self) -> Iterator[Event]:
        yield Header(schema=1, pid=1, mono_ns=0, unix_ns=0)
        yield Text(1, "t" * 5_000)
        yield Step(name=1, num=0, t=-5, dur=MS)
        yield Step(name=1, num=10**40, t=5, dur=MS)
        if self.breaks:
            raise KeyError("column")
        yield Execute(seq=1, program=1, t=1, start=1, end=2)

    def close(self) -> None: ...


def test_what_another_source_yields_is_held_to_the_same_bounds() -> None:
    reader = Checked(Foreign())
    assert [type(event) for event in reader] == [Header, Text, Execute]
    assert reader.notes == (
        "its own",
        "skipped 2 events with values that cannot be: step (2)",
        "cut texts or lists of over 4,096 characters or entries in 1 event",
    )


def test_a_source_that_fails_is_read_as_far_as_it_went() -> None:
    reader = Checked(Foreign(breaks=True))
    assert [type(event) for event in reader] == [Header, Text]
    assert reader.notes[-1] == "could not be read to its end (KeyError: 'column')"


def test_a_report_says_what_was_refused(tmp_path: Path) -> None:
    log = save(clean().events, tmp_path / "run.log")
    with log.open("ab") as file:
        file.write(b'{"k":"gc","t":1,"dur":-1,"generation":0}\n')
    report = xlaprof.report(log)
    assert report.run.notes == ("skipped 1 event with values that cannot be: gc (1)",)
    assert "! skipped 1 event with values that cannot be: gc (1)" in str(report)
