"""JAX's operations outside of any jitted function: what of the program runs them, and how long the host was there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.principles import DEAR, FELT, LOOKED_NS, NEARLY_ALL
from xlaprof.analysis.recompiles.jit_calls import compiled_outside, dropped

_OF_KEYS = re.compile(r"^(_?threefry|_?random|unstack$|stage$)")  # operations on keys, and their unpacking
_MANY = 200  # operations of a function: fewer are set-up
_EACH_NS = 200_000  # that one takes Python, on a busy machine: what is beyond is the jitted function's


class Body(NamedTuple):
    """What would be one jitted function."""

    file: str
    func: str
    call: Place  # the line of a loop that calls it; NOWHERE: its own lines are the loop's


class Eager(NamedTuple):
    """Operations of one body."""

    stacks: list[int]  # of their lines, the most frequent first
    ns: int  # that the main thread was seen at these lines
    lines: frozenset[tuple[str, int]]  # all lines on the way to them


def bodies(facts: Facts) -> dict[Body, Eager]:
    """Those that run many such operations, and take long."""
    outside = facts.run.jit.outside
    # functions that call jitted ones, themselves or by others: none of them can be jitted as a whole
    callers = (place for stack in _callers(facts) for place in way(facts, stack)) if outside else ()
    jitted = frozenset((place.file, place.func) for place in callers)
    again = compiled_outside(facts)
    groups: dict[Body, list[int]] = {}
    for stack in sorted(outside, key=lambda stack: -outside[stack].count):
        body = _body(facts, stack, jitted)
        if body is not None and facts.place(stack).at not in again:
            groups.setdefault(body, []).append(stack)
    many = {body: one for body, one in groups.items() if _computes(facts, one) >= _MANY}
    lines = {body: frozenset(place.at for stack in one for place in way(facts, stack)) for body, one in many.items()}
    mixed = _mixed(facts)
    looks = Counter[Body]()
    first = Counter(facts.run.jit.compiled_at)
    first.subtract(facts.run.jit.again_at)
    for table in looks_beside(facts, first):
        for stack, ns in table.items() if lines else ():
            body, at = _body(facts, stack, jitted), facts.place(stack).at
            if body in lines and at in lines[body] - again:
                if at in mixed:
                    ns = min(ns, mixed[at])
                    mixed[at] -= ns
                looks[body] += ns
    again_ns = facts.once(dropped)
    spent = {body: max(0, ns - sum(again_ns[stack] for stack in many[body])) for body, ns in looks.items()}
    found = {body: Eager(many[body], ns, lines[body]) for body, ns in spent.items()}
    return {body: eager for body, eager in found.items() if _is_long(facts, eager)}


def looks_beside(facts: Facts, compiled: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """ns that the main thread was seen at each stack, before the first program and since, without imports and without
    as much as was ``compiled`` there."""
    left, found = Counter(compiled), (dict[int, int](), dict[int, int]())
    for spent, table in zip(found, (facts.run.looks_before, facts.run.looks), strict=True):
        for (stack, state), ns in table.items():
            if state != "import":
                spent[stack] = spent.get(stack, 0) + ns - min(ns, left[stack])
                left[stack] -= min(ns, left[stack])
    return found


def _mixed(facts: Facts) -> dict[tuple[str, int], int]:
    """Lines that call jitted functions -> ns that such operations can have taken there, where most of what they run
    are such; else nobody knows which of the two took the time: 0."""
    outside, ran = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for stack, one in facts.run.jit.outside.items():
        outside[facts.place(stack).at] += one.count
    for stack, count in facts.run.executions_at.items():
        ran[facts.place(stack).at] += count
    most = {at: outside[at] * (outside[at] >= NEARLY_ALL * (outside[at] + ran[at])) for at in facts.once(jitted_calls)}
    return {at: count * _EACH_NS for at, count in most.items()}


def _computes(facts: Facts, stacks: list[int]) -> int:
    """Operations of lines that do more than to split a key, as each step of a program does."""
    told = [facts.run.jit.outside[stack] for stack in stacks]
    return sum(one.count for one in told if not all(_OF_KEYS.search(facts.text(name)) for name in one.functions))


def _is_long(facts: Facts, eager: Eager) -> bool:
    """Whether it is felt in the run, or in the time that is left beside compiling."""
    whole = facts.wall_s * 1e9
    working = whole - sum(one.dur for one in facts.run.jit.functions.values())
    beside = eager.ns - sum(compiled_again(facts, stack) for stack in eager.stacks)
    return eager.ns >= LOOKED_NS and (eager.ns >= FELT * whole or beside >= DEAR * working)


def compiled_again(facts: Facts, stack: int) -> int:
    """ns of compiling a line's operations for other shapes: a part of what they cost. The first time one function would
    take, too; for programs that were dropped it is told as compiling."""
    return max(0, facts.run.jit.again_at.get(stack, 0) - facts.once(dropped)[stack])


def way(facts: Facts, stack: int) -> list[Place]:
    """The lines of the program on a stack, innermost first."""
    return [place for place in facts.names.frames(stack) if place.line and not place.library]


def jitted_calls(facts: Facts) -> frozenset[tuple[str, int]]:
    """The lines that call jitted functions: handing over what they are given, and dispatching, takes the host there."""
    return frozenset(facts.place(stack).at for stack in _callers(facts))


def _callers(facts: Facts) -> set[int]:
    """Stacks of the lines that call jitted functions."""
    return {stack for one in facts.run.jit.functions.values() if one.name for stack in one.callers}


def _body(facts: Facts, stack: int, jitted: frozenset[tuple[str, str]]) -> Body | None:
    """The largest function on a stack that a loop calls and that has nothing jitted in it: its call is one program.

    What a library calls, as the layers of a model, is not called by the program. None: no line is known.
    """
    frames = facts.names.frames(stack)
    inside = max((at for at, place in enumerate(frames) if place.library), default=-1) + 1
    lines = [place for place in frames[inside:] if place.line]
    # a lambda or a comprehension is a part of the line that it is on
    lines = [place for place in lines if not place.func.rpartition(".")[2].startswith("<l")] or lines
    if not lines:
        return None
    for callee, line in reversed(list(pairwise(lines))):
        if line.loop and (callee.file, callee.func) not in jitted:
            return Body(callee.file, callee.func, line)
    return Body(lines[0].file, lines[0].func, NOWHERE)
