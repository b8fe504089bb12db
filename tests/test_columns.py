"""Lines of a long log are read as columns: what they say is what decoding each of them says, whatever is in them."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from every_event import every_event
from hypothesis import example, given
from hypothesis import strategies as st

from tests.mutations.as_columns import told
from tests.mutations.mutate import mutated
from xlaprof import events as ev
from xlaprof import log as logs
from xlaprof import reports
from xlaprof.analysis.occurrences import Occurrences, occurrences
from xlaprof.analysis.timeline import kept, spans
from xlaprof.analysis.views import lanes
from xlaprof.columns import present, reader
from xlaprof.columns.kinds import Alike, Columns, of_events
from xlaprof.columns.lines import Lines, columns_of
from xlaprof.events import AnyEvent
from xlaprof.pages.html import gather
from xlaprof.pages.html.close_ups import CloseUp
from xlaprof.pages.html.views import views
from xlaprof.reports import reading

HEADER = msgspec.json.encode(ev.Header(schema=ev.SCHEMA, pid=7, mono_ns=0, unix_ns=0)) + b"\n"
NS = 1_000_000

#: what a recorder writes, as lines
WRITTEN = [
    msgspec.json.encode(event)
    for event in (
        ev.Text(12, "layer 12, head 3"),
        ev.Scope(name=3, t=12 * NS, dur=NS, depth=1, meta={"layer": 3, "lr": 1e-05, "of": "a:5,b", "on": True}),
        ev.Scope(name=3, t=12 * NS, dur=NS, error="E12"),
        ev.Step(name=3, num=7, t=12 * NS, dur=NS),
        ev.Step(name=3, num=-7, t=12 * NS, dur=NS),
        ev.Barrier(t=12 * NS, dur=NS, trigger="read", stack=4, ops=12, turns=[3, 12]),
        ev.Execute(seq=1, program=1, t=NS, start=NS, end=12 * NS, trigger="eager", stack=4),
        ev.TransferToDevice(t=12 * NS, dur=NS, bytes=400, stack=4, again=True, what=3),
        ev.TransferFromDevice(t=12 * NS, dur=NS, wait=0, bytes=4, op=6, stack=4, late=True),
        ev.StepDigest(
            name=3, num=7, t=NS, dur=NS, busy=12, scopes={"3": [1, NS, NS], "12": [2, NS, 7]}, reads={"4:6": [1, 2, 3]}
        ),
        ev.StepDigest(name=3, num=7, t=NS, dur=NS, fallbacks={"4:6": [1, 2, 3]}),
    )
] + [msgspec.json.encode(event) for event in every_event("a 1")]

numbers = st.one_of(
    st.sampled_from(["0", "00", "007", "9", "10", "1e3", "-1", "1.5", "true", str(2**31 - 1), str(2**31), ""]),
    st.sampled_from([str(2**60 - 1), str(2**60), "9" * 18, "1" + "0" * 18, "9" * 19, "9" * 40]),
    st.integers(0, 10**18).map(str),
    st.integers(0, 99).map(str),
)
damage = st.sampled_from(
    [b"", b"{", b"[]", b"\xff", b'{"k":"step"}', b'{"k":"new","t":5}', b"  ", b"5", HEADER.strip()]
)


@st.composite
def lines(draw: st.DrawFn) -> list[bytes]:
    """Lines that are alike but for some digits, and some that are damaged."""
    written = []
    for line in draw(st.lists(st.sampled_from(WRITTEN), min_size=1, max_size=3)):
        runs = [run.span() for run in re.finditer(rb"\d+", line)]
        for _ in range(draw(st.integers(1, 4))):
            changed = line
            for start, end in reversed(draw(st.lists(st.sampled_from(runs), max_size=3, unique=True).map(sorted))):
                changed = changed[:start] + draw(numbers).encode() + changed[end:]
            written.append(changed)
        if draw(st.booleans()):
            written.append(draw(damage))
    return draw(st.permutations(written))


def read(text: bytes, columns: bool) -> tuple[Sequence[AnyEvent], logs.Lines]:
    """The events of lines that follow a header, and the account of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logs, "CHUNK", 1)
        patched.setattr(reader, "_OFTEN", 1)
        account = logs.Lines(columns)
        account.feed(HEADER)
        return account.feed(text), account


def rows(table: Sequence[Alike]) -> list[tuple[int, tuple[str, ...], list[int]]]:
    return [(int(n), one.keys, row.tolist()) for one in table for n, row in zip(one.those, one.numbers, strict=True)]


def plain(columns: Columns) -> object:
    kinds = {}
    for kind, some in columns.kinds.items():
        tables = {field: sorted(rows(table)) for field, table in some.tables.items()}
        kinds[kind] = some.at.tolist(), {field: column.tolist() for field, column in some.columns.items()}, tables
    return columns.codes.tolist(), kinds


@example([WRITTEN[6].replace(b'"start":1000000', b'"start":12000001')])  # begins after its end
@given(lines())
def test_lines_read_at_once_say_what_each_of_them_says(written: list[bytes]) -> None:
    text = b"".join(line + b"\n" for line in written)
    (once, account), (each, careful) = read(text, columns=True), read(text, columns=False)
    assert list(once) == list(each)
    assert [once[at] for at in range(len(once))] == list(each)
    assert list(once[1:-1]) == list(each[1:-1])
    assert (account.notes(), account.events, account.skipped) == (careful.notes(), careful.events, careful.skipped)
    assert present(once) == set(map(type, each))
    assert plain(columns_of(once)) == plain(of_events(list(each)))


def test_a_line_of_each_kind_is_read_without_decoding_it() -> None:
    written = [msgspec.json.encode(event) for event in every_event("text")]
    once, _ = read(b"".join(line + b"\n" for line in written * 3), columns=True)
    assert isinstance(once, Lines)
    read_at_once = {type(some.shape.event) for some in once._shaped}
    assert read_at_once == set(ev.kinds().values()) - {ev.Header}


def test_a_long_log_is_read_as_columns_from_plain_and_from_compressed_files(tmp_path: Path) -> None:
    steps = [ev.Step(name=3, num=num, t=num * NS, dur=NS + num) for num in range(9_000)]
    text = HEADER + b"".join(msgspec.json.encode(step) + b"\n" for step in steps)
    plainly, compressed = tmp_path / "run.log", tmp_path / "run.log.gz"
    plainly.write_bytes(text)
    compressed.write_bytes(gzip.compress(text))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logs, "LONG", 1)
        for path in (plainly, compressed):
            batches = list(logs.LogReader(path).batches())
            assert [event for batch in batches for event in batch][1:] == steps
            assert any(isinstance(batch, Lines) for batch in batches)
        with contextlib.closing(logs.Tail(plainly)) as tail:
            polled = [tail.poll(200_000) for _ in range(5)]
    assert [event for batch in polled for event in batch][1:] == steps


def test_forms_without_end_are_read_with_care_and_not_remembered() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "_FORMS", 4)
        patched.setattr(reader, "_LIKE", 8)
        patched.setattr(reader, "_SHAPES", 2)
        written = [json.dumps({"k": "scope", "name": 1, "t": 10**n, "dur": 1, f"new{'x' * m}": 1, "error": f"e{m}"})
                   for n in range(12) for m in range(6)]  # fmt: skip
        text = "".join(line + "\n" for line in written).encode()
        once, account = read(text, columns=True)
    assert list(once) == list(read(text, columns=False)[0])
    assert account._reader is not None
    assert len(account._reader._like) < 8
    assert len(account._reader._forms) <= 4


def test_numbers_of_any_length_are_read_from_the_text() -> None:
    written = ["7", "42", "12345678", "123456789", "1234567890123456", "12345678901234567", "9" * 18, "0"]
    text = reader.Text("".join(f"{one}\n" for one in written).encode())
    found = text.numbers(text.end, text.end - text.begin)
    assert found.tolist() == [int(one) for one in written]
    assert found.dtype == np.int64


@pytest.mark.parametrize("seeds", [range(first, first + 25) for first in range(7_100_000, 7_100_100, 25)])
def test_the_report_of_a_damaged_log_is_the_same(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        (path := tmp_path / f"{seed}.log").write_bytes(mutated(seed))
        assert told(path, columns=True) == told(path, columns=False)


recordings = pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[1].glob("sample_traces/*.log")), ids=lambda path: path.stem
)


@recordings
def test_the_report_of_a_recording_is_the_same(path: Path) -> None:
    assert told(path, columns=True) == told(path, columns=False)


@recordings
def test_findings_of_a_recording_happened_when_each_line_says_so(path: Path) -> None:
    run, _ = reports.fold(str(path))

    def happened(long: int) -> list[Occurrences]:
        with pytest.MonkeyPatch.context() as patched:
            for module, name, most in ((logs, "LONG", long), (logs, "CHUNK", 1_024), (reader, "_OFTEN", 1)):
                patched.setattr(module, name, most)
            return [occurrences(logs.read(path).batches(), run, one) for one in run.report().findings]

    assert happened(1) == happened(1 << 60)


@recordings
def test_the_page_of_a_recording_is_the_same_close_ups_included(path: Path) -> None:
    def page(long: int) -> tuple[tuple[CloseUp, ...], object]:
        with pytest.MonkeyPatch.context() as patched:
            for module, name, most in (
                (gather, "_SHORT", 0), (spans, "MOST", 200), (kept, "GAPS", 40), (lanes, "_RELIEVED_EVERY", 64),
                (logs, "LONG", long), (logs, "CHUNK", 1_024), (reader, "_OFTEN", 1),
            ):  # fmt: skip
                patched.setattr(module, name, most)
            gathered = gather.gather(str(path), reading(str(path)))
            return gathered.close_ups, views(gathered)

    once, each = page(1), page(1 << 60)
    assert once[0]
    assert once == each
