"""Which compiled functions run by CUDA graphs, as they were compiled to, and which do not, or in part; and why.

A CUDA graph spares the host the launch of each kernel. So what it is worth is the time that the host is in the calls of
a function: of what runs without, looks at the main thread tell how long that was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from xlaprof.analysis.evidence.breaks import function_name
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import CudaGraphStat, Place
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import LOOKED_NS, NAMED
from xlaprof.analysis.sums import grouped
from xlaprof.events import CudaGraph, NoCudaGraph
from xlaprof.text.quantities import duration, percent, plural, times
from xlaprof.text.strings import enumerated

Key = tuple[int, int]  # of a function: stack of its definition, name
#: why something runs without, in the place of PyTorch's words
_WHY = {
    "mutation": "an argument is written in place",
    "copy": "a tensor is copied between the GPU and the host",
    "cpu": "operations run on the CPU",
    "size": "values decide on the size of a result",
    "dynamic": "sizes are inputs of the graph, and triton.cudagraph_skip_dynamic_graphs is set",
    "limit": "it was recorded too often, as tensors moved",
    "devices": "it runs on several devices",
}


class Without(NamedTuple):
    """What of one function runs without, for one reason at one line."""

    key: Key
    kind: str
    place: Place  # of the reason; without a line where it is not known
    event: NoCudaGraph  # the first
    whole: bool  # all of a graph, or only operations of it
    ops: int  # of these, how many at most
    graphs: int  # versions of the function, the backward ones, parts after breaks


def without(facts: Facts) -> list[Without]:
    """By function, reason and line. What is brought to the GPU where the CPU computes it is a part of that."""
    found = _without(facts)
    computed = {(one.key, one.place.at) for one in found if one.kind == "cpu"}
    return [one for one in found if one.kind != "copy" or (one.key, one.place.at) not in computed]


def _without(facts: Facts) -> list[Without]:
    by = grouped(
        facts.run.cuda_graphs.without,
        lambda one: ((one.code, one.func), one.kind, facts.place(one.line).at, one.operator),
    )
    return [
        Without(
            key,
            kind,
            facts.place(several[0].line),
            several[0],
            any(not one.all or one.ops >= one.all for one in several),
            max(one.ops for one in several),
            len({(one.compile, one.backward) for one in several}),
        )
        for (key, kind, _, _), several in by.items()
    ]


def why(one: Without) -> str:
    """The reason in words, without the line."""
    if one.kind == "operator" and one.event.operator:
        return f"CUDA graphs cannot hold {one.event.operator}"
    said = _WHY.get(one.kind, "")
    if one.kind == "size" and one.event.operator:
        said = f"values decide on the size of what {one.event.operator} makes"
    return said or f"PyTorch says: {one.event.reason or 'nothing'}"


def by_function(facts: Facts) -> dict[Key, list[CudaGraph]]:
    """The CUDA graphs that were recorded."""
    return grouped(facts.run.cuda_graphs.recorded, lambda one: (one.code, one.func))


def sized(recorded: list[CudaGraph]) -> list[CudaGraph]:
    """Of a function: those of the part that was recorded for the most combinations of sizes.

    A forward graph and its backward one, or two parts of a graph, have inputs of their own for the same batch.
    """
    parts = grouped(
        (one for one in recorded if one.sizes), lambda one: (one.compile, one.backward, re.sub(r"\d+", "#", one.sizes))
    )
    return max(parts.values(), key=lambda several: len({one.sizes for one in several}), default=[])


def said(facts: Facts) -> dict[Key, tuple[str, ...]]:
    """Sentences on each function that was compiled for CUDA graphs."""
    recorded, left = by_function(facts), grouped(without(facts), lambda one: one.key)
    return {key: tuple(_said(recorded.get(key, []), left.get(key, []))) for key in {**recorded, **left}}


def _said(recorded: list[CudaGraph], left: list[Without]) -> Iterator[str]:
    if recorded:
        spent = duration(sum(one.dur for one in recorded) / 1e9)
        different = list(dict.fromkeys(one.sizes for one in sized(recorded)))
        text = f"{plural(len(recorded), 'CUDA graph')} recorded in {spent}"
        if len(different) > 1:
            text += f", for {len(different)} sizes ({enumerated(different, NAMED)})"
        again = [one for one in recorded if one.again]
        if again:
            text += f"; {times(len(again))} again, as {again[0].again}"
        yield text
    for one in left:
        part = "all of it" if one.whole else plural(one.ops, "operation")
        at = f" at {short(one.place)}" if one.place.line else ""
        yield f"{part} without a CUDA graph: {why(one)}{at}"


def stat(facts: Facts) -> CudaGraphStat:
    """What is said of all functions together."""
    recorded, left = by_function(facts), grouped(without(facts), lambda one: one.key)
    keys = {**recorded, **left}
    whole = [key for key in keys if any(one.whole for one in left.get(key, []))]
    part = [key for key in keys if key in left and key not in whole]
    calls, none = _in_calls_ns(facts, set(keys)), _in_calls_ns(facts, set(whole))
    return CudaGraphStat(
        functions=len(keys),
        without=len(whole),
        part=len(part),
        recordings=len(facts.run.cuda_graphs.recorded) + facts.run.cuda_graphs.further,
        recording_s=sum(one.dur for one in facts.run.cuda_graphs.recorded) / 1e9,
        calls_s=calls / 1e9,
        without_s=none / 1e9,
        text=_text(facts, len(keys), whole, len(part), calls, none) if keys else "",
    )


def _text(facts: Facts, count: int, whole: list[Key], part: int, calls: int, none: int) -> str:
    by = count - len(whole) - part
    parts = [f"{by:,} of {plural(count, 'function')} {'runs' if by == 1 else 'run'} by CUDA graphs"]
    if part:
        parts.append(f"{part:,} in part")
    if whole:
        names = enumerated([function_name(facts, *key) or "?" for key in whole], NAMED)
        parts.append(f"{len(whole):,} without ({names})")
    text = ", ".join(parts)
    if whole and calls >= LOOKED_NS:
        text += (
            f": the main thread was in calls of {'that' if len(whole) == 1 else 'those'} for {duration(none / 1e9)}, "
            f"{percent(none / calls)} of its time in calls of all of them"
        )
    return f"{text}."


def _in_calls_ns(facts: Facts, keys: set[Key]) -> int:
    """How long the main thread was seen at lines that call these functions, without compiling."""
    callers: set[tuple[str, int]] = set()
    told: list[CudaGraph | NoCudaGraph] = [*facts.run.cuda_graphs.recorded, *facts.run.cuda_graphs.without]
    for one in told:
        if (one.code, one.func) in keys and facts.place(one.stack).line:
            callers.add(facts.place(one.stack).at)
    total = 0
    for looks in (facts.run.looks_before, facts.run.looks):
        for (stack, _), ns in looks.items():
            if any(place.at in callers for place in facts.names.frames(stack)[:1]):
                total += ns
    return total
