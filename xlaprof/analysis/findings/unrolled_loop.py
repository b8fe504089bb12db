"""unrolled_loop: a Python loop within a jitted function, traced turn by turn into a program of thousands of operations.

Of JAX's programs. A line of the program made the same operation many times; tracing, lowering and XLA's compilation pay
for each. Few turns are told of where they are those of a known loop, and the first program alone takes long for them.
Cost: the share of the compile time that all turns but one have.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import compiles
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.jit import MANY
from xlaprof.analysis.model import Finding
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import DEAR, LONG_S
from xlaprof.analysis.sums import grouped
from xlaprof.events import JitCompile
from xlaprof.text.quantities import duration, plural, times

_LARGE = 1_000  # operations of such lines: fewer compile in no time
_WORTH_NS = 500_000_000  # in all: for less nobody writes a loop otherwise


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each such line of each function."""
    large = (one for one in facts.run.jit.unrolled if not one.cached and (_is_large(one) or _is_dear(facts, one)))
    for group in grouped(large, lambda event: (event.func, facts.place(event.loop).at)).values():
        if sum(map(_avoidable, group)) >= _WORTH_NS:
            yield _finding(facts, group)


def _is_large(event: JitCompile) -> bool:
    return event.turns >= MANY and event.loop_ops >= _LARGE


def _is_dear(facts: Facts, event: JitCompile) -> bool:
    """Whether even few turns of a loop take long to compile: what is compiled again after that has another cause."""
    if event.versions or not facts.names.loop(event.loop).line:
        return False
    return _avoidable(event) >= max(LONG_S, DEAR * facts.wall_s) * 1e9


def _avoidable(event: JitCompile) -> float:
    """ns of compiling that all turns but one took."""
    return event.dur * min(1.0, event.loop_ops / max(1, event.ops)) * (1 - 1 / event.turns)


def _finding(facts: Facts, group: list[JitCompile]) -> Finding:
    largest = max(group, key=lambda event: event.ops)
    place, name = facts.place(largest.loop), facts.text(largest.func)
    loops = facts.names.loops(largest.loop)
    outer = [short(one) for one in loops[1:] if one.line]
    within = f" within {', '.join(outer)}" * bool(outer)
    around = f"in the loop of {short(loops[0])}{within}, " if outer or (loops and loops[0].line) else ""
    whole = sum(event.dur for event in group) / 1e9
    return facts.finding(
        "unrolled_loop",
        place,
        count=len(group),
        counted=compiles(group),
        cost_s=sum(map(_avoidable, group)) / 1e9,
        cause=(
            f"{name} is a program of {plural(largest.ops, 'operation')}: {around}this line is traced "
            f"{times(largest.turns)}, and XLA compiles each turn. Compiling took {duration(whole)}."
        ),
        advice=(
            "Write the loop with jax.lax.scan (or fori_loop): one turn is traced and compiled, however many there are. "
            "Layers that are alike: stack their parameters, and scan over them (nn.scan, nnx.scan). Where unrolling "
            "makes the run faster, unroll a few turns: scan(..., unroll=4)."
            + f" Begin with the outermost ({''.join(outer[-1:])}): where no turn needs another, jax.vmap does."
            * bool(outer)
        ),
        evidence=listed(
            [
                f"tracing {duration(one.trace / 1e9)}, lowering {duration(one.lower / 1e9)}, XLA "
                f"{duration(one.backend / 1e9)}; {one.loop_ops:,} of {one.ops:,} operations are the loop's"
                for one in group
            ]
        ),
        discriminator=name,
        also=[facts.place(largest.code), facts.place(largest.stack), *loops],
    )


KIND = Kind(find, blamed_for=("max_compile_time",))
