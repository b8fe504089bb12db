"""How a call of a captured graph differs from the one before: an argument has another shape, or is another number.

Where shapes are dynamic, Dynamo captures one graph for all of them. An XLA program has fixed shapes, so one is compiled
for each combination of sizes: a recompilation that only the runtime knows of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from xlaprof.events import Difference, GraphDiff, Operation
from xlaprof.recording import recorder
from xlaprof.runtime.recompile.graph_diff import Recorded, origin
from xlaprof.runtime.recompile.places import Places, operation
from xlaprof.runtime.trace import naming
from xlaprof.runtime.trace.storage import sig
from xlaprof.runtime.trace.tensor import XLATensor

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.trace.trie import Node

    from .sketch import Layout


class Given(NamedTuple):
    """The arguments that a program was compiled for, without values."""

    arguments: tuple[Any, ...]  # ``(shape, dtype)`` of a tensor, or the number
    program: int


def given(args: list[Any], program: int) -> Given:
    """``args`` without their values; numbers are kept."""
    return Given(
        tuple((tuple(arg.shape), arg.dtype) if isinstance(arg, torch.Tensor) else arg for arg in args), program
    )


def graph_diff(before: Given, args: list[Any], layout: Layout, call: tuple[RawFrame, ...]) -> Recorded | None:
    """The difference to the program compiled last. A tensor's comes before a number's, which follows from it.

    ``call``: the line that calls the compiled function.
    """
    now = given(args, 0).arguments
    changed = [i for i, (old, new) in enumerate(zip(before.arguments, now, strict=True)) if old != new]
    if not changed:
        return None
    at = next((i for i in changed if isinstance(args[i], torch.Tensor)), changed[0])
    old, new, arg = before.arguments[at], now[at], args[at]
    places, reader = Places(recorder.active), _reader(layout, at)
    line = (reader.frames if reader is not None else ()) or call
    if isinstance(arg, torch.Tensor):
        came = Operation(operation(reader) if reader is not None else "the compiled function", places(line))
        storage = arg._storage if type(arg) is XLATensor else None
        made, moved = origin(storage.tape, storage) if storage is not None else ((), False)
        difference = Difference(
            "shape" if old[0] != new[0] else "dtype",
            sig(*old).text,
            sig(*new).text,
            came=came,
            name=naming.parameter(storage) if storage is not None else "",
            made=places(made),
            moved=moved,
        )
    else:
        came = Operation("the compiled function", places(line))
        difference = Difference("argument", repr(old), repr(new), "a number", came=came)
    return Recorded(GraphDiff(against=before.program, differences=[difference], total=1, captured=True), places)


def _reader(layout: Layout, place: int) -> Node | None:
    """The first operation that reads an argument."""
    if place not in layout.sources:
        return None
    slot = layout.graph.inputs[layout.sources.index(place)]
    return layout.graph.reader(slot)
