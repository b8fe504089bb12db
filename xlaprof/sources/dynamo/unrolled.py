"""Which line of a loop made most of the graph that Dynamo captured.

Dynamo keeps the lines of each operation. Where the turns have parameters of their own they are layers: no loop over
data, and one program of them all is what was asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from xlaprof.recording.stacks import RawFrame, is_library
from xlaprof.source_text.lines import loop_lines
from xlaprof.sources.unrolled import Unrolled, most_repeated

from .process import frame_of

_MOST = 50_000  # operations looked at
_Line = tuple[str, int, str]  # file, line, function
_CALLS = ("call_function", "call_method", "call_module")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (.+)$', re.MULTILINE)


def captured() -> Unrolled:
    """Of the graph whose record Dynamo writes; of nothing where this PyTorch has other frames."""
    calls = [node for node in graph_nodes() if node.op in _CALLS]
    found = most_repeated(((str(node.target), lines(node)) for node in calls), RawFrame._make)
    return found if not _are_layers(calls, found) else Unrolled(found.ops)


def graph_nodes() -> list[Any]:
    """The operations of the graph whose record Dynamo writes; none where this PyTorch has other frames."""
    frame = frame_of("compile_and_call_fx_graph")
    graph = getattr(frame.f_locals.get("self"), "graph", None) if frame is not None else None
    return list(getattr(graph, "nodes", None) or ())[:_MOST]


def lines(node: Any) -> tuple[_Line, ...]:
    """The program's lines at which an operation stands, innermost first."""
    trace = node.meta.get("stack_trace")
    return _lines(trace if isinstance(trace, str) else "")


def _are_layers(calls: list[Any], found: Unrolled) -> bool:
    """Whether the turns take parameters, and none of them the same."""
    here = [node for node in calls if _in_turns(lines(node), found.frames)]
    uses = Counter(name for node in here for name in _parameters(node))
    return bool(uses) and 2 * max(uses.values()) < found.turns


def _in_turns(stack: tuple[_Line, ...], frames: tuple[RawFrame, ...]) -> bool:
    """Whether an operation belongs to the loop around ``frames``, a line and its callers.

    A module at the same line of the outermost function may take parameters, too: the loop's own lines count. The loop
    of a library that calls layers in turn, as nn.Sequential's, has none: then it is all that this line does.
    """
    looped = next((one for one in frames if _loops(one.file, one.line)), None)
    if looped is None:
        return stack[-1:] == frames[-1:] != ()
    head = _loops(looped.file, looped.line)[0]
    return any((one[0], one[2]) == (looped.file, looped.func) and head in _loops(*one[:2]) for one in stack)


def _parameters(node: Any) -> Iterator[str]:
    """Those that an operation takes as they are."""
    for given in node.all_input_nodes:
        if given.op in ("placeholder", "get_attr") and "_parameters_" in str(given.target):
            yield str(given.target)


@lru_cache(maxsize=1024)
def _lines(trace: str) -> tuple[_Line, ...]:
    """The program's lines of PyTorch's text, innermost first."""
    frames = ((file, int(line), func) for file, line, func in _FRAME.findall(trace))
    return tuple(one for one in frames if not is_library(one[0], None))[::-1]


@lru_cache(maxsize=1024)
def _loops(file: str, line: int) -> tuple[int, ...]:
    """Heads of the loops around a line, innermost first."""
    return tuple(loop_lines(file, line))
