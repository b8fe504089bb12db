"""By which operations the devices of a program exchange data, for which line, and which arguments force them to.

Read from XLA's own text of the program after its passes (``HloModule.to_string()``): tables of files and stack frames,
then one computation after the other, the entry last. A parameter of the entry has the argument's name, and how it is
divided among the devices. Where an operation's operands lead back to such a parameter, without another exchange
between them, its placement is what forces the exchange.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from xlaprof.compiled import hlo
from xlaprof.recording.stacks import RawFrame

KINDS = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast",
    "ragged-all-to-all",
)  # fmt: skip
LONGEST = 16 << 20  # characters of a program: longer ones are not looked at
_TOLD = 32  # of a program, those that move most
_ARGUMENTS = 4  # of each
_WALKED = 20_000  # operations, from one exchange back

_NAME = re.compile(r"%([\w.\-]+)")
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\]")
_OPERATION = re.compile(r"([\w\-]+)\(")
_CALLED = re.compile(r"\b(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_SHARDING = re.compile(r"\bsharding=\{(.*?)\}(?:, |$)")
_TILES = re.compile(r"devices=\[([\d,]+)\]")
_INDEX = re.compile(r"\bindex=(\d+)")
_WHOLE = ("replicated", "maximal", "manual")


class Exchange(NamedTuple):
    """Operations of one kind, for one line."""

    kind: str
    shape: str  # of the largest result: "f32[8,16]"
    bytes: int  # of all results
    times: int
    frames: tuple[RawFrame, ...]  # the user's, innermost first; empty: XLA does not say
    arguments: tuple[tuple[str, str], ...]  # name, and how it is divided: "dimension 1 in 4"


class _Operation(msgspec.Struct, frozen=True):
    name: str
    kind: str
    result: str  # its type
    operands: tuple[str, ...]
    rest: str  # attributes
    within: str  # the computation
    at: int = -1  # of a parameter: which


class _Program(msgspec.Struct):
    tables: hlo.Tables
    operations: dict[tuple[str, str], _Operation]  # by computation and name
    roots: dict[str, str]
    callers: dict[str, list[_Operation]]
    entry: str = ""


def exchanges(text: str) -> list[Exchange]:
    """The exchanges of a program; those that move most first. Empty: it has none, or its text is another."""
    if len(text) > LONGEST or not any(f" {kind}" in text for kind in KINDS):
        return []
    program = _parsed(text)
    together: dict[tuple[str, tuple[RawFrame, ...], tuple[tuple[str, str], ...]], list[_Operation]] = {}
    for one in program.operations.values():
        kind = one.kind.removesuffix("-start")
        if kind in KINDS:
            key = kind, _frames(program, one), tuple(_arguments(program, one))
            together.setdefault(key, []).append(one)
    found = [
        Exchange(kind, _largest(several), sum(_size(one.result) for one in several), len(several), frames, arguments)
        for (kind, frames, arguments), several in together.items()
    ]
    return sorted(found, key=lambda one: -one.bytes)[:_TOLD]


def _parsed(text: str) -> _Program:
    program = _Program(hlo.Tables(), {}, {}, {})
    within = ""
    for line in text.splitlines():
        if program.tables.take(line):
            continue
        if begun := hlo.COMPUTATION.match(line):
            within = begun[2]
            if begun[1]:
                program.entry = within
        elif within and (made := hlo.INSTRUCTION.match(line)):
            _add(program, within, bool(made[1]), made[2], made[3])
    return program


def _add(program: _Program, within: str, is_root: bool, name: str, text: str) -> None:
    result, _, text = text.partition(" ") if not text.startswith("(") else _parenthesised(text)
    kind = _OPERATION.match(text.lstrip())
    if kind is None:
        return
    inside, _, rest = _parenthesised(text.lstrip()[kind.end() - 1 :])
    at = int(inside[1:-1]) if kind[1] == "parameter" and inside[1:-1].isdecimal() else -1
    made = _Operation(name, kind[1], result, tuple(_NAME.findall(inside)), rest, within, at)
    program.operations[within, name] = made
    if is_root:
        program.roots[within] = name
    called = _CALLED.findall(rest)
    for branches in _BRANCHES.findall(rest):
        called += _NAME.findall(branches)
    for one in called:
        program.callers.setdefault(one, []).append(made)


def _parenthesised(text: str) -> tuple[str, str, str]:
    """What the first parenthesis holds, with it, and what follows."""
    deep = 0
    for at, letter in enumerate(text):
        deep += (letter == "(") - (letter == ")")
        if not deep:
            return text[: at + 1], "", text[at + 1 :]
    return text, "", ""


def _size(result: str) -> int:
    """Bytes of a type, all arrays of a tuple together."""
    return sum(_bytes(dtype, shape) for dtype, shape in _ARRAY.findall(result))


def _bytes(dtype: str, shape: str) -> int:
    bits = re.search(r"\d+", dtype)
    width = 1 if dtype == "pred" or bits is None else max(1, int(bits[0]) // 8)
    return width * math.prod(map(int, filter(None, shape.split(","))))


def _largest(several: Iterable[_Operation]) -> str:
    arrays = [array for one in several for array in _ARRAY.findall(one.result)]
    dtype, shape = max(arrays, key=lambda one: _bytes(*one), default=("", ""))
    return f"{dtype}[{shape}]" if dtype else ""


def _frames(program: _Program, one: _Operation) -> tuple[RawFrame, ...]:
    """The user's lines, from that of the operation outwards."""
    return tuple(hlo.users(program.tables.frames(one.rest))[:8])


def _arguments(program: _Program, exchange: _Operation) -> Iterator[tuple[str, str]]:
    """The divided arguments that its operands lead back to, the nearest first."""
    waiting: list[tuple[str, str, int]] = [(exchange.within, name, -1) for name in exchange.operands]
    seen = set(waiting)
    told = 0
    for within, name, index in waiting:
        one = program.operations.get((within, name))
        if one is None or one.kind.removesuffix("-start") in KINDS:
            continue
        if one.kind == "parameter" and within == program.entry:
            divided = _divided(one.rest)
            named = hlo.op_name(one.rest)
            if divided and named and told < _ARGUMENTS:
                told += 1
                yield named, divided
            continue
        for following in _before(program, one, index):
            if following not in seen and len(seen) < _WALKED:
                seen.add(following)
                waiting.append(following)


def _before(program: _Program, one: _Operation, index: int) -> Iterator[tuple[str, str, int]]:
    """What an operation, or one element of its result, is made of."""
    if one.kind == "parameter":
        for caller in program.callers.get(one.within, ()):
            at = 0 if caller.kind == "while" else one.at + (caller.kind == "conditional")
            if at < len(caller.operands):
                yield caller.within, caller.operands[at], index
    elif one.kind == "get-tuple-element" and (asked := _INDEX.search(one.rest)):
        yield from ((one.within, name, int(asked[1])) for name in one.operands)
    elif one.kind == "tuple" and 0 <= index < len(one.operands):
        yield one.within, one.operands[index], -1
    else:
        keeps = index if one.kind in ("while", "optimization-barrier") else -1
        yield from ((one.within, name, keeps) for name in one.operands)


def _divided(rest: str) -> str:
    """How a parameter is divided among devices; empty: each has the whole."""
    found = _SHARDING.search(rest)
    if found is None or found[1].startswith(_WHOLE):
        return ""
    tiles = _TILES.search(found[1])
    if tiles is None:
        return "divided"
    sizes = [int(size) for size in tiles[1].split(",")]
    if "last_tile_dim_replicate" in found[1]:
        sizes.pop()
    elif "last_tile_dims=" in found[1]:
        sizes = sizes[: -(found[1].partition("last_tile_dims={")[2].partition("}")[0].count(",") + 1)]
    along = [f"dimension {at} in {size}" for at, size in enumerate(sizes) if size > 1]
    return ", ".join(along)
