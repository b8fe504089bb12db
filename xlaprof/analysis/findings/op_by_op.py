"""op_by_op: JAX's operations outside of any jitted function, one after the other, in a loop.

Each is dispatched from Python and is a program of its own, which XLA cannot fuse with the next. Cost: the time that the
main thread was seen at these lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import FELT, LOOKED_NS
from xlaprof.events import OutsideOperations
from xlaprof.text.quantities import duration, plural

_MANY = 200  # operations of a function: fewer are set-up


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each function of the program's that runs such operations."""
    outside, looks = facts.run.jit.outside, Counter[tuple[str, int]]()
    if not outside:
        return
    for table in (facts.run.looks, facts.run.looks_before):
        for (stack, state), ns in table.items():
            if state != "import":
                place = facts.names.place(stack)
                looks[place.at] += ns
    groups: dict[tuple[str, str], list[int]] = {}
    for stack in outside:
        place = facts.names.place(stack)
        if place.line:
            groups.setdefault((place.file, place.func), []).append(stack)
    for stacks in groups.values():
        lines = {place.at for place in map(facts.names.place, stacks)}
        ns = sum(looks[line] for line in lines)
        many = sum(outside[stack].count for stack in stacks) >= _MANY
        if many and ns >= max(LOOKED_NS, FELT * facts.wall_s * 1e9):
            yield _finding(facts, sorted(stacks, key=lambda stack: -outside[stack].count), ns)


def _finding(facts: Facts, stacks: list[int], ns: int) -> Finding:
    outside = facts.run.jit.outside
    count = sum(outside[stack].count for stack in stacks)
    names = dict.fromkeys(facts.names.text(one) for stack in stacks for one in sorted(outside[stack].functions))
    shown = ", ".join([name for name in names if name][:5])
    place, steps = facts.names.place(stacks[0]), facts.step_count
    each = f", {count / steps:,.0f} in a step" if steps > 1 else ""
    return facts.finding(
        "op_by_op",
        place,
        count=sum(outside[stack].events for stack in stacks),
        counted=Matching(OutsideOperations, ("stack",), frozenset((stack,) for stack in stacks)),
        cost_s=ns / 1e9,
        cause=(
            f"{place.func or 'The program'} runs {plural(count, 'operation')} ({shown}) outside of any jitted function"
            f"{each}: Python dispatches each, and each is a program of its own. The main thread was there for "
            f"{duration(ns / 1e9)}."
        ),
        advice=(
            "Put the body of the loop into one function under jax.jit, or the whole loop into jax.lax.scan or "
            "fori_loop: one dispatch for all, and XLA fuses what follows each other. What is set-up or logging, do "
            "with NumPy."
        ),
        evidence=listed([_line(facts.names.place(stack), outside[stack].count) for stack in stacks]),
        also=map(facts.names.place, stacks[1:]),
    )


def _line(place: Place, count: int) -> str:
    return f"{short(place)}: {plural(count, 'operation')}"


KIND = Kind(find, blamed_for=("max_idle",))
