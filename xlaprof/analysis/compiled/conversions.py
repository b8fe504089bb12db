"""Where compiled graphs make numbers wider, and copy tensors from one device to another."""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import ConversionStat
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import LISTED, NAMED
from xlaprof.events import Conversion, DynamoCompile
from xlaprof.text.strings import enumerated

Key = tuple[int, int]  # of a function: stack of its definition, name
_DOUBLE = "f64"


def stats(facts: Facts) -> dict[Key, tuple[ConversionStat, ...]]:
    """Of each function the conversions in its graphs, in their order; those of its first versions."""
    return {key: tuple(_stat(facts, one) for one in found[:LISTED]) for key, (found, _, _) in _found(facts).items()}


def said(facts: Facts) -> dict[Key, tuple[str, ...]]:
    """The same in words."""
    return {
        key: tuple(_said([_stat(facts, one) for one in found], double, ops))
        for key, (found, double, ops) in _found(facts).items()
    }


def _found(facts: Facts) -> dict[Key, tuple[list[Conversion], int, int]]:
    """Of each function the conversions, and how many operations make float64 numbers, of how many."""
    by: dict[Key, list[DynamoCompile]] = {}
    for event in facts.run.torch_compile.converting:
        by.setdefault((event.code, event.func), []).append(event)
    return {
        key: (
            [one for event in several for one in event.conversions],
            sum(one.double for one in several),
            sum(one.ops for one in several),
        )
        for key, several in by.items()
    }


def _stat(facts: Facts, one: Conversion) -> ConversionStat:
    return ConversionStat(one.kind, one.op, one.old, one.new, facts.place(one.stack), one.count, one.mixed, one.numpy)


def _said(found: list[ConversionStat], double: int, ops: int) -> Iterator[str]:
    wide = next((one for one in found if one.kind == "upcast" and one.new == _DOUBLE), None)
    if wide is not None:
        how = "makes float64" if not wide.old else f"casts {wide.old} to float64"
        how = f"takes float64 beside {wide.old}" if wide.mixed else how
        yield f"computes in float64 from {short(wide.place)} on ({wide.op} {how}): {double:,} of {ops:,} operations"
    upcasts = [one for one in found if one.kind == "upcast" and one.new != _DOUBLE]
    if upcasts:
        named = (f"{one.old} to {one.new} in {one.op} at {short(one.place)}" for one in upcasts)
        yield f"upcasts: {enumerated(list(dict.fromkeys(named)), NAMED)}"
    copies = [one for one in found if one.kind == "copy"]
    if copies:
        named = (f"{one.old} to {one.new} at {short(one.place)}{' for NumPy' * one.numpy}" for one in copies)
        yield f"copies between devices: {enumerated(list(dict.fromkeys(named)), NAMED)}"
