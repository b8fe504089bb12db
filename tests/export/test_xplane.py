"""What is written is what protobuf reads: the writer joins serialized pieces by hand."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xlaprof.export.xplane import Plane, XSpace, write_space

texts = st.text(st.characters(codec=None), max_size=20)  # lone surrogates too: Python has them, UTF-8 has not
values = st.integers() | st.floats(allow_nan=False) | texts
spans = st.tuples(st.integers(0, 10**15), st.integers(0, 10**12))


def read_back(planes: list[Plane], base: int = 0) -> Any:
    file = io.BytesIO()
    write_space(file, planes, "box", base_ns=base)
    return XSpace.FromString(file.getvalue())


def stats_of(plane: Any, stats: Any) -> dict[str, Any]:
    names = {entry.key: entry.value.name for entry in plane.stat_metadata}
    found = {}
    for stat in stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind)
        found[names[stat.metadata_id]] = names[value] if kind == "ref_value" else value
    return found


@given(st.lists(st.tuples(texts, spans, st.dictionaries(texts, values, max_size=3)), max_size=30))
def test_events_come_back_as_they_went_in_sorted(rows: list[tuple[str, tuple[int, int], dict[str, Any]]]) -> None:
    plane = Plane(1, "p")
    line = plane.line(1, "l")
    for name, (t, dur), stats in rows:
        line.add(plane.name(name), t, dur, plane.stats(stats))
    (read,) = read_back([plane]).planes
    names = {entry.key: entry.value.name for entry in read.event_metadata}
    found = [(names[e.metadata_id], e.offset_ps // 1000, e.duration_ps) for e in read.lines[0].events]

    def utf8(text: str) -> str:
        return text.encode(errors="replace").decode()

    assert sorted(found) == sorted((utf8(name), t, max(dur, 1) * 1000 - 1) for name, (t, dur), _ in rows)
    assert [e.offset_ps for e in read.lines[0].events] == sorted(e.offset_ps for e in read.lines[0].events)
    for event in read.lines[0].events:
        for value in stats_of(read, event.stats).values():
            assert isinstance(value, int | float | str)


def test_an_enclosing_event_comes_before_what_it_encloses() -> None:
    plane = Plane(1, "p")
    line = plane.line(1, "l")
    for dur in (1, 10, 5):
        line.add(plane.name(str(dur)), 7, dur)
    (read,) = read_back([plane], base=7).planes
    assert [e.duration_ps for e in read.lines[0].events] == [9999, 4999, 999]
    assert {e.offset_ps for e in read.lines[0].events} == {0}


def test_stats_keep_their_types_and_texts_are_stored_once() -> None:
    plane = Plane(1, "p", {"kind": "cpu"})
    line = plane.line(1, "l")
    name = plane.name("n", stats={"program_id": 3})
    for _ in range(100):
        line.add(name, 0, 1, plane.stats({"i": -5, "f": 0.5, "s": "text", "big": 2**70}))
    (read,) = read_back([plane]).planes
    assert stats_of(read, read.lines[0].events[0].stats) == {"i": -5, "f": 0.5, "s": "text", "big": str(2**70)}
    assert stats_of(read, read.stats) == {"kind": "cpu"}
    assert stats_of(read, read.event_metadata[0].value.stats) == {"program_id": 3}
    assert [entry.value.name for entry in read.stat_metadata].count("text") == 1


def test_planes_and_lines_keep_their_order_and_names() -> None:
    first, second = Plane(1, "a"), Plane(2, "b")
    for i in range(3):
        second.line(i, f"line {i}").add(second.name("e"), i, 1)
    space = read_back([first, second])
    assert [plane.name for plane in space.planes] == ["a", "b"]
    assert [(line.id, line.name, len(line.events)) for line in space.planes[1].lines] == [
        (0, "line 0", 1),
        (1, "line 1", 1),
        (2, "line 2", 1),
    ]
    assert list(space.hostnames) == ["box"]
