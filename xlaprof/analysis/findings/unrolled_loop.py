"""unrolled_loop: a Python loop within a jitted or compiled function, traced turn by turn into one large program.

Of JAX's programs and of ``torch.compile``'s graphs. A line in a loop of the program's made the same operation many
times; tracing, lowering and compiling pay for each. Few turns are told of where the first program alone takes long for
them. Cost: the share of the compile time that all turns but one have, of compilations that are no finding
for what made them necessary again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import compiles
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.guard_failures import sorting
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import first_use, outermost, repeating, turns_ns
from xlaprof.analysis.fold.jit import MANY
from xlaprof.analysis.model import Finding
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import DEAR, LITTLE, LONG_S, NAMED
from xlaprof.analysis.recompiles.jitted import sorting as jitted
from xlaprof.analysis.recompiles.jitted.sorting import JAX
from xlaprof.analysis.statements import called, names, nodes
from xlaprof.analysis.sums import grouped
from xlaprof.events import DynamoCompile, JitCompile, Recompile
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated
from xlaprof.vocabulary import fill

_Compiled = JitCompile | DynamoCompile
_OF_JAX = (
    "Write the loop with jax.lax.scan (or fori_loop): one turn is traced and compiled, however many there are."
    "{layers} Where unrolling makes the run faster, unroll a few turns: scan(..., unroll=4)."
)
_OF_A_COMPREHENSION = (
    "No turn of a comprehension needs another's result: jax.vmap of what it computes, over its elements stacked in an "
    "array (or jax.lax.map of it, which holds one turn at a time): one turn is traced and compiled, however many there "
    "are."
)
_OF_LAYERS = " Layers that are alike: stack their parameters, and scan over them (nn.scan, nnx.scan)."
_MODULES = ("__call__", "forward")  # what they do is a method of this name
_OF_TORCH = (
    "graph",
    "each turn is compiled",
    "Compile what one turn computes, a function or module of its own, and leave the loop around it uncompiled: one "
    "turn is traced and compiled, however many there are. In a run of hours the whole loop in one graph may be worth "
    "its compile time.",
)
_LARGE = 1_000  # operations of such lines: fewer compile in no time
_WORTH_NS = 500_000_000  # in all: for less nobody writes a loop otherwise


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each such loop, however many programs hold it."""
    made: tuple[_Compiled, ...] = (*facts.run.jit.unrolled, *facts.run.torch_compile.unrolled)
    looped = (one for one in made if not one.cached and repeating(facts.names, one.loop))  # a library's loop is its own
    told = {_key(one.event) for group in facts.once(jitted.sort_out).found for one in group.records}
    again = facts.once(sorting.sort_out)
    told |= {_key(record.event) for group in (*again.found, *again.behind.values()) for record, _, _ in group}
    graphs = grouped((one for one in looped if _key(one) not in told), _key).values()  # forward and backward
    large = [one for graph in graphs if any(map(_is_large, graph)) or _is_dear(facts, graph) for one in graph]
    for group in grouped(large, lambda event: (type(event), outermost(facts.names, event.loop).at)).values():
        if sum(turns_ns(facts, one) for one in group) >= _WORTH_NS:
            yield _finding(facts, group)


def _key(event: _Compiled | Recompile) -> tuple[int, int, str | int]:
    """One program's key: that of a graph is one of what it was compiled again for, too, and of its backward graph."""
    return event.code, event.func, event.t if isinstance(event, JitCompile) else event.compile


def _is_large(event: _Compiled) -> bool:
    return event.turns >= MANY and event.loop_ops >= _LARGE


def _is_dear(facts: Facts, graph: list[_Compiled]) -> bool:
    """Whether even few turns of a loop take long to compile: what is compiled again after that has another cause."""
    again = any(isinstance(event, JitCompile) and event.versions for event in graph)
    return not again and sum(turns_ns(facts, one) for one in graph) >= max(LONG_S, DEAR * facts.wall_s) * 1e9


def _finding(facts: Facts, group: list[_Compiled]) -> Finding:
    largest = max(group, key=lambda event: event.ops)
    of = [max(same, key=lambda event: event.ops) for same in grouped(group, lambda event: event.func).values()]
    of.sort(key=lambda event: -event.ops)
    line, functions = facts.place(largest.loop), [facts.text(one.func) for one in of]
    loop, loops = outermost(facts.names, largest.loop), repeating(facts.names, largest.loop)
    outer = [short(one) for one in loops[1:] if one.line]
    within = f" within {', '.join(outer)}" * bool(outer)
    which = f"line {line.line}" if line.file == loop.file else short(line)
    of_jax = isinstance(largest, JitCompile)
    way = _OF_A_COMPREHENSION if nodes(loops[0].code, ast.comprehension) else _OF_JAX
    made, compiler, advice = ("program", "XLA compiles each turn", way) if of_jax else _OF_TORCH
    what = f"{functions[0]} is a {made}"
    turns, ops = times(largest.turns), plural(sum(one.ops for one in of), "operation")
    if len(of) > 1:
        what, ops = f"{enumerated(functions, NAMED)} are {made}s", f"{ops} in all"
        most = max(one.turns for one in of)
        turns = f"{'up to ' * any(one.turns < most for one in of)}{times(most)} in each"
    whole = sum(event.dur for event in group) / 1e9
    begun = sum(first_use(facts, event) for event in group) / 1e9
    used = facts.text(largest.backend) if isinstance(largest, DynamoCompile) else ""
    anyway = f", {duration(begun)} of it for the first use of {used} in the process" * (begun >= LITTLE * whole)
    return facts.finding(
        "unrolled_loop",
        loop,
        operation=JAX if of_jax else "",
        count=len(group),
        counted=compiles(group),
        cost_s=sum(turns_ns(facts, one) for one in group) / 1e9,
        cause=(
            f"{what} of {ops}: in the loop of {short(loops[0])}{within}, {which} is traced {turns}, and {compiler}. "
            f"Compiling took {duration(whole)}{anyway}."
        ),
        advice=fill(advice, layers=_OF_LAYERS * _calls_modules(facts, largest.loop))
        + " Begin with the loop of most turns." * bool(outer and of_jax),
        evidence=listed(
            [
                f"{f'{facts.text(one.func)}: ' * (len(of) > 1)}{_spent(one)}{one.loop_ops:,} of {one.ops:,} operations "
                "are the loop's"
                for one in group
            ]
        ),
        discriminator=" ".join(sorted(functions)),
        also=[*(facts.place(stack) for one in of for stack in (one.code, one.stack)), line, *loops],
    )


def _calls_modules(facts: Facts, stack: int) -> bool:
    """Whether the loop lies in a module, or calls what it goes over."""
    frames = facts.names.frames(stack)
    heads = (one for loop in repeating(facts.names, stack) for one in nodes(loop.code, ast.AST))
    turns = {name for one in heads if isinstance(one, ast.For | ast.comprehension) for name in names(one.target)}
    calls = {called(one) for frame in frames for one in nodes(frame.code, ast.Call)}
    return any(frame.func.rpartition(".")[2] in _MODULES for frame in frames) or not turns.isdisjoint(calls)


def _spent(event: _Compiled) -> str:
    if isinstance(event, DynamoCompile):
        return f"the backward graph took {duration(event.dur / 1e9)}; of what it is of, " * event.backward
    spent = (("tracing", event.trace), ("lowering", event.lower), ("XLA", event.backend))
    return ", ".join(f"{what} {duration(ns / 1e9)}" for what, ns in spent) + "; "


KIND = Kind(find, blamed_for=("max_compile_time",))
