"""Loops of the program: the loop in which something happens, from the heads of the loops around its line.

Three things show that a loop lacks a barrier, so that all its turns are one graph: named steps pass and nothing cuts
the graph; in programs without named steps and barriers, only a read cuts a graph that holds many turns of a loop; or
the graph of a step holds a loop of many turns over the same tensors (layers repeat lines too, but each has its own
weights), or of a few turns that are training steps themselves. What grows or is compiled again because of it is a
consequence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import repeat
from operator import eq
from typing import NamedTuple

from xlaprof.analysis.fold.tallies import FEW, CompileRecord, Site
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, Names, head
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import FELT, HABIT, MANY, MOST, NAMED, NEARLY_ALL
from xlaprof.analysis.statements import nodes
from xlaprof.events import DynamoCompile, JitCompile
from xlaprof.text.quantities import duration

from .facts import Facts

#: times that one line recorded the same operation in one graph: fewer may be layers, not an unrolled loop
GROWTHS = 4  # growths of a graph in a row: fewer are variation from step to step
#: changes that make a recompilation: the graph has other inputs, not more work
_RECOMPILES = ("inputs", "shape", "outputs", "size")
_FACTOR = 1.2  # times its first size: less is variation, too

_STEPS = 8  # in one graph: fewer may be gradient accumulation
_TURNS = 20  # of a loop inside a step's graph: fewer may be micro-batches, or a few turns that cost little
SMALL = 200  # operations in a graph: with more, its barrier costs little beside its work
_ROWS = 1024  # graphs of a barrier that are looked at
_LAYERS = "forward"  # functions whose loops are over layers, or over a sequence


def is_over_layers(loop: Place) -> bool:
    """Whether a loop is one over a model's layers, or over a sequence, by the function that it is in."""
    return loop.acting.func.rpartition(".")[2].startswith(_LAYERS)


def repeating(names: Names, stack: int) -> tuple[Place, ...]:
    """The heads of the loops around a place, innermost first; where it is in none, the lines of comprehensions. Empty:
    there is none, or the innermost loop is a library's."""
    if loops := names.loops(stack):
        return loops if loops[0].line else ()
    lines = (one for one in names.frames(stack) if not one.func.endswith(">"))
    return tuple(one for one in lines if nodes(one.code, ast.comprehension))


def outermost(names: Names, stack: int) -> Place:
    """Of these the one that holds all others; NOWHERE: there is none."""
    return next((one for one in reversed(repeating(names, stack)) if one.line), NOWHERE)


def turns_ns(facts: Facts, event: JitCompile | DynamoCompile) -> float:
    """ns of compiling that all turns of an unrolled loop but one took; the first use of a compiler costs as much for
    one turn."""
    share = min(1.0, event.loop_ops / max(1, event.ops)) * (1 - 1 / event.turns)
    return (event.dur - first_use(facts, event)) * share


def first_use(facts: Facts, event: JitCompile | DynamoCompile) -> int:
    """ns that compiling took since it was the first of its compiler in the process; of JAX's none is told apart."""
    return facts.run.torch_compile.first_use(event) if isinstance(event, DynamoCompile) else 0


def beside(names: Names, stack: int, barrier: int) -> Place:
    """The program's line, in a loop that the barrier lies not in, from which ``stack`` is reached; NOWHERE: in none.

    A loop over layers is a part of the step.
    """
    loops = {head(loop) for loop in names.loops(stack) if not is_over_layers(loop)}
    others, line = loops - names.heads(barrier), NOWHERE
    for frame in names.frames(stack) if others else ():
        line = line if frame.library else frame
        if (frame.acting.file, frame.acting.func, frame.acting.loop) in others:
            return line
    return NOWHERE


def grows(site: Site) -> bool:
    """Whether the graphs that end there grew several times in a row, and by much."""
    visits, before, after = site.longest_growth
    return visits >= GROWTHS and after >= before * _FACTOR


def growing(facts: Facts) -> dict[int, list[CompileRecord]]:
    """By barrier or read whose graphs grow: those that were compiled for that.

    None where the graphs have other inputs, not more work.
    """
    found = {}
    for stack, site in facts.run.sites.items():
        if not grows(site) or (site.trigger == "read" and _is_barred(facts, stack)):
            continue
        again = [record for record in facts.run.compiles if record.stack == stack and record.nth]
        recompiles = (record.change is not None and record.change.what in _RECOMPILES for record in again)
        if not again or not all(recompiles):
            found[stack] = again
    return found


def _is_barred(facts: Facts, stack: int) -> bool:
    """Whether a barrier ends the turns of a read's loop: reads of one turn then grow by each other, and by no turn."""
    loop = facts.names.loop(stack)
    ends = (one for one, site in facts.barriers.items() if site.executed >= MANY)
    return bool(loop.line) and any(head(facts.names.loop(one)) == head(loop) for one in ends)


def visits_per_pass(facts: Facts, stack: int) -> int:
    """Visits of a barrier in each pass of its loop: mostly 1, but 7 in a hook that a model's seven layers call.

    A barrier with several visits stands in a loop over tensors, or in a function that none of the program's lines calls
    by its name; then another barrier of the same loop ends the pass.
    """
    if row := row_of(facts, stack):
        return len(row)
    names = facts.names
    if not names.loop(stack).line or not _is_called_back(names, stack):
        return 1
    ends = (
        site.executed for other, site in facts.barriers.items() if other != stack and names.shares_loop(stack, other)
    )
    passes = max(ends, default=0)
    return max(1, round(facts.run.sites[stack].executed / passes)) if passes >= HABIT else 1


def in_each_step(facts: Facts) -> dict[int, Site]:
    """The barriers that are reached in most steps, by stack; none where steps are not known."""
    least = NEARLY_ALL * facts.step_count
    return {
        stack: site
        for stack, site in facts.barriers.items()
        if least and (site.in_steps if facts.named_steps else site.executed) >= least
    }


def host_s(site: Site) -> float:
    """The host's time in a barrier's visits, without compiling."""
    return site.dispatch.percentile(0.5) * site.executed / 1e9


def several_barriers(facts: Facts) -> str:
    """What several barriers in a step take; empty where there is one."""
    sites = in_each_step(facts)
    if len(sites) < 2:
        return ""
    places = sorted(map(facts.place, sites), key=lambda place: place.at)
    took, which = duration(sum(map(host_s, sites.values())) / facts.step_count), dict.fromkeys(map(short, places))
    first = ", ".join(list(which)[:NAMED])
    return f" {len(sites)} barriers in a step ({first}) take the host {took} of it: normal in a run of this length."


def row_of(facts: Facts, stack: int) -> Sequence[int]:
    """The programs, a few operations each, that a barrier in a loop over tensors runs in every pass in the same order.

    Empty for other loops: their turns run one program, but for the first and the last, or more operations.
    """
    return facts.once(_rows).get(stack, ())


def _rows(facts: Facts) -> dict[int, Sequence[int]]:
    return {stack: _row_of(facts, stack) for stack in facts.run.sites}


def _row_of(facts: Facts, stack: int) -> Sequence[int]:
    site, names = facts.run.sites[stack], facts.names
    if site.trigger == "read" or site.ops > SMALL * site.executed:
        return ()
    ran = facts.ran_at.get(stack, [])[:_ROWS]
    turns = next(
        (n for n in range(1, len(ran) // 3 + 1) if sum(map(eq, ran, ran[n:])) >= NEARLY_ALL * (len(ran) - n)), 0
    )
    row = ran[turns : 2 * turns]
    few = all(facts.ops.get(program, FEW + 1) <= FEW for program in row[1:-1])
    if len(set(row[1:-1])) < 2 or not few:
        return ()
    outer = (other for other, one in facts.barriers.items() if one.executed >= HABIT)
    return row if len(names.loops(stack)) > 1 or any(names.is_outside(one, stack) for one in outer) else ()


def _is_called_back(names: Names, stack: int) -> bool:
    """Whether a library called the innermost function: the line that led to it does not name it."""
    frames = names.frames(stack)
    if len(frames) < 2 or not frames[1].acting.code:
        return False
    name = frames[0].acting.func.rpartition(".")[2]
    return name.isidentifier() and not re.search(rf"\b{name}\b", frames[1].acting.code)


class Unbarred(NamedTuple):
    """A loop without a barrier."""

    stack: int  # of the read or barrier that ends its graph; 0: not known
    loop: Place  # its head; NOWHERE where it is not known
    turns: int
    noun: str  # what the turns are called

    def is_cut_at(self, facts: Facts, stack: int) -> bool:
        """Whether a read or barrier ends a graph of as many turns: another call of the loop's function may have its."""
        if stack == self.stack:
            return True
        site = facts.run.sites.get(stack)
        if site is None or not site.loop or site.loops < NEARLY_ALL * self.turns:
            return False
        return head(self.loop) in facts.names.heads(site.loop)

    def follows(self, facts: Facts, record: CompileRecord) -> bool:
        """Whether a graph that is compiled again follows from it: its length, or what a read in the loop computes."""
        if record.stack == self.stack or not self.stack:
            return True
        inside = head(self.loop) in facts.names.heads(record.stack)
        return record.trigger == "read" and bool(self.loop.line) and inside


def unbarred(facts: Facts) -> Unbarred | None:
    """The loop of the run that lacks a barrier."""
    run = facts.run
    if not run.compiles:
        return None
    steps = max((tally.worst_unbarred for name, tally in run.steps.items() if name), default=0)
    barriers = sum(site.executed for site in facts.barriers.values())
    if steps >= _STEPS or (steps >= HABIT and not barriers):
        stack = max(run.sites, key=lambda stack: run.sites[stack].loops, default=0)
        loops = _loops(facts, run.sites[stack], stack, 0) if stack else []
        return Unbarred(stack, loops[-1][0] if loops else NOWHERE, steps, "steps")
    reads = {
        stack: site
        for stack, site in run.sites.items()
        if site.trigger == "read" and (site.loop_trains or site.loops >= MANY)
    }
    # each read may run everything recorded before it: that is a growing_graph
    growing = any(site.longest_growth[0] >= min(MANY, site.loops) - 1 for site in reads.values())
    if reads and not facts.named_steps and barriers <= 1 and not growing:
        return _heaviest(facts, reads, MANY)
    inside = {
        stack: site
        for stack, site in run.sites.items()
        if site.loop_trains or (site.loop_shared and site.loops >= (_TURNS if site.loop_learns else MANY))
    }
    found = _heaviest(facts, inside, MANY) or _now_and_then(facts, inside)
    if found is None or not found.loop.line or is_over_layers(found.loop):
        return None
    site = run.sites[found.stack]
    if not site.loop_trains and found.turns < _TURNS and (site.loop_learns or not _is_dear(facts, found)):
        return None
    # the line repeats more often than the loop turns, or less often in a row, as the inner one of two loops
    return found if site.loop_ops * max(site.loops, found.turns) >= MANY * found.turns else None


def _now_and_then(facts: Facts, sites: dict[int, Site]) -> Unbarred | None:
    """The loop of training steps whose barrier comes once in several of them, where compiling them together is dear."""
    barriers = ((stack, site) for stack, site in sites.items() if site.loop_trains and stack in facts.barriers)
    for stack, site in barriers:
        around = facts.names.heads(stack)
        for loop, turns in facts.names.turns(site.loop, site.turns):
            found = Unbarred(stack, loop, turns, "turns")
            if head(loop) in around and turns >= HABIT and _is_dear(facts, found):
                return found
    return None


def _is_dear(facts: Facts, found: Unbarred) -> bool:
    """Whether its graphs take much of the run to compile beyond those of one turn."""
    compiles = sum(record.dur for record in facts.run.compiles if record.stack == found.stack)
    return compiles * (1 - 1 / found.turns) >= FELT * facts.wall_s * 1e9


def _heaviest(facts: Facts, sites: dict[int, Site], least: int) -> Unbarred | None:
    """The loop in the largest graph: another read may run next to nothing in each turn."""
    ops = dict.fromkeys(sites, 0)
    for record in facts.run.compiles:
        if record.stack in ops:
            ops[record.stack] = max(ops[record.stack], record.ops)
    for stack in sorted(sites, key=lambda stack: (ops[stack], sites[stack].loops), reverse=True):
        site = sites[stack]
        if ops[stack] < MOST * site.loops * site.loop_ops:  # reads ran these turns: no graph holds them
            continue
        if not facts.names.loops(site.loop):
            return Unbarred(stack, NOWHERE, site.loops, "turns")
        if loops := _loops(facts, site, stack, least):
            return Unbarred(stack, *loops[-1], "turns")
    return None


def _loops(facts: Facts, site: Site, cut: int, least: int) -> list[tuple[Place, int]]:
    """Loops around the repeated line but not around ``cut``, where the graph ends, innermost first; with their turns.

    A line in a model repeats more often than the loop that calls it; recordings of earlier versions know no turns.
    Layers with weights of their own are none.
    """
    around = facts.names.heads(cut)
    known = facts.names.turns(site.loop, site.turns or repeat(site.loops))
    return [
        (loop, turns)
        for loop, turns in known
        if head(loop) not in around
        and (turns >= least or (site.loop_trains and turns))
        and (site.loop_shared or not is_over_layers(loop))
    ]


def is_one_call(facts: Facts, stack: int) -> bool:
    """Whether a line is a library's that the program calls once: no loop of its own leads there."""
    frames = facts.names.frames(stack)
    return bool(frames) and frames[0].library != () and not any(one.loop for one in frames if not one.library)
