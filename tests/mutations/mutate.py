"""Valid logs, and what a machine, a disk or a person can make of them. One number makes one log, always the same."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from analysis.test_bad_input import training
from analysis.test_kinds import PLANTED
from every_event import every_event
from test_log import GOOD

from xlaprof.bounds import LONGEST
from xlaprof.events import Source, StepDigest, kinds
from xlaprof.vocabulary import Vocabulary

SAMPLES = Path(__file__).parents[2] / "sample_traces"
MOST = 200  # lines of a log that is mutated: many small logs find more than few large ones

Json = Any
Lines = list[bytes]


# -- valid logs


@cache
def valid() -> tuple[tuple[bytes, ...], ...]:
    """Logs as lines: stories with each kind of finding, real recordings, and one event of each kind, all fields set."""
    stories = [training(), GOOD, *(plant() for _, plant in sorted(PLANTED.items()))]
    logs = [tuple(msgspec.json.encode(event) for event in story[:MOST]) for story in stories]
    for path in sorted(SAMPLES.glob("*.log")):
        lines = path.read_bytes().splitlines()
        defined = tuple(line for line in lines if line.startswith((b'{"k":"text"', b'{"k":"stack"')))
        rest = lines[1:]
        logs += [(lines[0], *defined, *rest[at : at + MOST // 2]) for at in range(0, len(rest), MOST // 2)]
    logs.append((*logs[0], *full()))
    header = logs[0][0]
    return tuple(log if log[0].startswith(b'{"k":"header"') else (header, *log) for log in logs)


def full() -> list[bytes]:
    """One event of each kind with every field set."""
    made = [json.dumps(event).encode() for event in every_event("1")]
    digest = StepDigest(
        1, 7, 10**9, 10**7, 1, 2, 10**6, 10**5, 2, {"3": [1, 5, 5]}, {"1:2": [2, 9, 5]}, {"2:4": [1, 4, 4]}
    )
    words = Vocabulary(arrays="{arrays}", scalar_code="{value}{other}", pad_code="{name:>99999999}", keep_code="{")
    return [*made, msgspec.json.encode(digest), msgspec.json.encode(Source(1, "jax", words))]


# -- what can be in the place of a value

NUMBERS: tuple[Json, ...] = (
    -1, 0, 1, 2, 3, 255, 4_095, 100_000, 10**9, (1 << 31) - 1, 1 << 31, 1 << 46, 1 << 53, (1 << 61) - 1, 1 << 61,
    (1 << 63) - 1, 1 << 63, 1 << 64, 10**30, -(1 << 31), -(1 << 63), -(1 << 70), 0.5, -0.5, 1e12, 1e300, 5e-324,
    float("nan"), float("inf"), float("-inf"), "@raw1e400@", "@raw" + "9" * 5_000 + "@", "@raw-@", "@raw01@",
)  # fmt: skip
TEXTS: tuple[Json, ...] = (
    "", " ", "\0", "\n\n", "\x1b[2J", "\u2028", "\u202e", "{", "}", "{0}", "{name:>99999999}", "{x.y[z]}", "%s%n",
    "[red]", "[/]", "::error::x", "..", "/", "a/b\\c", "\ufeff", "名" * 90, "e\u0301" * 60, "\u200b" * 80, "x" * 4_096,
    "y" * 4_097, "/" * 5_000, " z" * 20_000, "@raw\"\\ud800\"@", "@raw\"\\x\"@", "1:1", "1:", ":", "²", "9" * 30,
    "f32[8]", "f32[", "f32[1,2,3,4,5,6,7,8,9]", "f32[99999999999999999999]", "[0, 1]", "read", "eager", "barrier",
    "shape", "scalar", "operation", "outputs", "evicted", "loop", "dynamic", "lr", "#7", "<module>", "nan",
    "-1", "1e999", "0/0", "!0/0/0",
)  # fmt: skip
OTHERS: tuple[Json, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [[[1]]],
    {"": {}},
    [1, 2, 3],
    ["a"],
    "@raw" + "[" * 3_000 + "@",
    [0] * 5_000,
)


JUNK = (b"", b"\xff\xfe", b"\0" * 300, b"[" * 9_000, b"null", b"{}", b'{"k":1}', b'{"k":"' + b"q" * 900 + b'"}')


def absurd(rng: random.Random, old: Json) -> Json:
    """Another value: mostly of the same sort, which more checks let pass."""
    pools = (NUMBERS, TEXTS, OTHERS)
    of = 0 if isinstance(old, int | float) else 1 if isinstance(old, str) else 2
    return rng.choice(pools[of if rng.random() < 0.8 else rng.randrange(3)])


def encode(event: Json) -> bytes:
    """JSON, and what Python would not write: a text "@raw...@" is written as it is."""
    text = json.dumps(event, ensure_ascii=_escaped(event))
    while (at := text.find('"@raw')) >= 0:
        end = text.index('@"', at)
        text = text[:at] + json.loads(text[at : end + 2])[4:-1] + text[end + 2 :]
    return text.encode("utf-8", "surrogatepass")


def _escaped(event: Json) -> bool:
    """Lone surrogates can only be written escaped; all else also as UTF-8."""
    return len(str(event)) % 2 == 0


def decode(line: bytes) -> dict[str, Json] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def slots(value: Json) -> Iterator[tuple[Any, Any]]:
    """Every place in an event that holds a value: container and key."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from slots(inner)


# -- mutations of lines, in place


def _at(rng: random.Random, lines: Lines) -> int:
    return rng.randrange(rng.random() < 0.97, len(lines)) if len(lines) > 1 else 0  # the header rarely


def _change(rng: random.Random, lines: Lines, change: Callable[[dict[str, Json]], None]) -> None:
    at = _at(rng, lines)
    event = decode(lines[at])
    if event:
        change(event)
        lines[at] = encode(event)


def a_value(rng: random.Random, lines: Lines) -> None:
    def change(event: dict[str, Json]) -> None:
        container, key = rng.choice(list(slots(event)))
        container[key] = absurd(rng, container[key])

    _change(rng, lines, change)


def a_column(rng: random.Random, lines: Lines) -> None:
    """The same field of all events of a kind."""
    event = decode(lines[_at(rng, lines)])
    if not event or len(event) < 2:
        return
    name = rng.choice([key for key in event if key != "k"] or ["k"])
    value = absurd(rng, event.get(name))
    by = rng.choice((0, 0, 1, -(10**9), 10**12, 1 << 60))
    for at, line in enumerate(lines):
        other = decode(line) if line.startswith(b'{"k":"%s"' % str(event.get("k")).encode("utf-8", "replace")) else None
        if other is not None:
            known = other.get(name)
            other[name] = known + by if by and isinstance(known, int) else value
            lines[at] = encode(other)


def a_field_less(rng: random.Random, lines: Lines) -> None:
    _change(rng, lines, lambda event: event.pop(rng.choice(list(event)), None))


def a_field_more(rng: random.Random, lines: Lines) -> None:
    names = [name for of in kinds().values() for name in of.__struct_fields__]
    _change(rng, lines, lambda event: event.update({rng.choice([*names, "new"]): absurd(rng, rng.choice((1, "", [])))}))


def a_kind(rng: random.Random, lines: Lines) -> None:
    _change(rng, lines, lambda event: event.update(k=rng.choice([*kinds(), "quantum", "", 7])))


def swapped(rng: random.Random, lines: Lines) -> None:
    one, other = _at(rng, lines), _at(rng, lines)
    lines[one], lines[other] = lines[other], lines[one]


def doubled(rng: random.Random, lines: Lines) -> None:
    at = _at(rng, lines)
    lines[at:at] = lines[at : at + rng.choice((1, 1, 20))] * rng.choice((1, 1, 2, 50))


def dropped(rng: random.Random, lines: Lines) -> None:
    at = _at(rng, lines)
    del lines[at : at + rng.choice((1, 1, 5, 40))]
    lines += [b""] * (not lines)


def foreign(rng: random.Random, lines: Lines) -> None:
    """A line of another log: ids that mean something else, times of another clock, another header."""
    other = rng.choice(valid())
    lines.insert(_at(rng, lines), rng.choice(other) if rng.random() < 0.9 else other[0])


def junk(rng: random.Random, lines: Lines) -> None:
    line = rng.choice(
        (b"", b"\xff\xfe", b"\0" * 300, b"[" * 9_000, b"null", b"{}", b'{"k":1}', b'{"k":"' + b"q" * 900 + b'"}')
    )
    lines.insert(_at(rng, lines), line)


def bytes_of_a_line(rng: random.Random, lines: Lines) -> None:
    at = _at(rng, lines)
    line = bytearray(lines[at])
    for _ in range(rng.choice((1, 2, 8)) if line else 0):
        line[rng.randrange(len(line))] = rng.randrange(256)
    lines[at] = bytes(line[: rng.randrange(len(line) + 1)] if rng.random() < 0.2 else line)


def time_turned(rng: random.Random, lines: Lines) -> None:
    """From here on the clock says something else."""
    first, by = _at(rng, lines), rng.choice((-(10**12), -1, 10**15, 1 << 59))
    for at in range(first, len(lines)):
        event = decode(lines[at])
        for name in ("t", "start", "end"):
            if event and isinstance(event.get(name), int):
                event[name] += by
                lines[at] = encode(event)


def words(rng: random.Random, lines: Lines) -> None:
    """The words of a framework, which are templates."""
    said = {
        name: rng.choice(("{}", "{", "{value}{x}", "{name:>99999999}", "{name.__class__}", "{axis!r}", "w"))
        for name in _WORDS
    }
    lines.insert(1, encode({"k": "source", "t": 1, "name": "jax", "words": said}))


_WORDS = Vocabulary.__struct_fields__

MUTATIONS: tuple[Callable[[random.Random, Lines], None], ...] = (
    a_value, a_value, a_value, a_column, a_column, a_field_less, a_field_more, a_kind, swapped, doubled, dropped,
    foreign, junk, bytes_of_a_line, time_turned, words,
)  # fmt: skip


def mutated(seed: int) -> bytes:
    """The log that this number makes."""
    rng = random.Random(seed)
    lines = list(rng.choice(valid()))
    for _ in range(rng.choice((1, 1, 2, 3, 5, 20))):
        rng.choice(MUTATIONS)(rng, lines)
    data = b"\n".join(lines) + b"\n"
    how = rng.random()
    if how < 0.03:
        data = data[: rng.randrange(len(data))]
    elif how < 0.06:
        data = gzip.compress(data, 1)
        data = data[: rng.randrange(len(data))] if rng.random() < 0.5 else data
    return data


def huge(size: int) -> Iterator[tuple[str, bytes]]:
    """Logs in which one text, list or table is ``size`` characters long: what it is called, and the log."""
    header, *rest = valid()[0]
    for line in (header, *full()):
        event = decode(line)
        assert event is not None
        for container, key in list(slots(event)):
            was = container[key]
            if key == "k" or not isinstance(was, str | list | dict) or (isinstance(was, dict) and len(was) > 1):
                continue  # of a table one entry is set
            if event["k"] == "stack" and isinstance(was, list) and isinstance(key, int):
                continue  # a frame: further entries are fields of a later version
            if isinstance(was, list) and size // len(str(was)) <= LONGEST:
                continue  # so few are not too many
            if isinstance(was, str):
                container[key] = "x " * (size // 2)
            elif isinstance(was, list):
                container[key] = was * (size // len(str(was)))
            else:
                container[key] = {str(n): one for n in range(size // len(str(was))) for one in was.values()}
            lines = (header, encode(event), *rest) if event["k"] != "header" else (encode(event), *rest)
            yield f"{event['k']} {key}", b"\n".join(lines) + b"\n"
            container[key] = was
