"""Why a graph of Dynamo's is compiled once more: which of its arguments has another shape, or is another number.

Where shapes are dynamic Dynamo captures one graph for all of them and says nothing any more. A program of XLA's has
fixed shapes, so there is one for each combination of sizes: a recompilation that only the runtime knows of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from xlaprof.runtime.recompile import explain
from xlaprof.runtime.recompile.reasons import Reason, operation
from xlaprof.runtime.trace import naming
from xlaprof.runtime.trace.storage import sig
from xlaprof.runtime.trace.tensor import XLATensor

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.trace.trie import Node

    from .sketch import Layout

#: the role of such a change
DYNAMIC = "dynamic"


class Given(NamedTuple):
    """What a program was compiled for."""

    arguments: tuple[Any, ...]  # of each: ``(shape, dtype)``, or the number it is
    program: int


def given(args: list[Any], program: int) -> Given:
    """``args`` without their values; numbers are kept."""
    return Given(
        tuple((tuple(arg.shape), arg.dtype) if isinstance(arg, torch.Tensor) else arg for arg in args), program
    )


def reason(before: Given, args: list[Any], layout: Layout, call: tuple[RawFrame, ...]) -> Reason | None:
    """What differs from the program compiled last: of a tensor before that of a number, which follows from it.

    ``call``: the line that calls the compiled function.
    """
    now = given(args, 0).arguments
    places = [i for i, (old, new) in enumerate(zip(before.arguments, now, strict=True)) if old != new]
    if not places:
        return None
    place = next((i for i in places if isinstance(args[i], torch.Tensor)), places[0])
    old, new, arg = before.arguments[place], now[place], args[place]
    reader = _reader(layout, place)
    at = (reader.frames if reader is not None else ()) or call
    if not isinstance(arg, torch.Tensor):
        subject = "a number that the compiled function is given"
        return Reason("argument", repr(old), repr(new), subject, at, at, 0, True, role=DYNAMIC, against=before.program)
    made, moved = explain.origin(arg._storage.tape, arg._storage) if type(arg) is XLATensor else ((), False)
    return Reason(
        "shape" if old[0] != new[0] else "dtype",
        sig(*old).text, sig(*new).text,
        f"input of {operation(reader)}" if reader is not None else "input of the compiled function",
        at, at, 0, True,
        name=naming.parameter(arg._storage) if type(arg) is XLATensor else "",
        made=made, moved=moved, role=DYNAMIC, against=before.program,
    )  # fmt: skip


def _reader(layout: Layout, place: int) -> Node | None:
    """The first operation that reads an argument."""
    if place not in layout.sources:
        return None
    slot = layout.graph.inputs[layout.sources.index(place)]
    return layout.graph.reader(slot)
