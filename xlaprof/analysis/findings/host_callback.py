"""host_callback: a program of JAX's calls Python as it runs, again and again, and stops each time until that has run.

``jax.debug.callback`` or ``print`` in the turns of a scan, left over from a search. Cost: the time in them, with what
is brought to and from the device for each; how long XLA stops beside that, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.jit import Counted
from xlaprof.analysis.model import Finding
from xlaprof.analysis.principles import DEAR, MANY, NOTICED, WORTH_SAYING
from xlaprof.analysis.sums import grouped, merged
from xlaprof.events import HostCallbacks
from xlaprof.text.quantities import duration, times


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line."""
    called = facts.run.jit.callbacks
    for stacks in grouped(called, lambda stack: facts.place(stack).at).values():
        whole = merged(Counted, (called[stack] for stack in stacks))
        if whole.count >= MANY and _is_felt(facts, whole.ns / 1e9):
            yield _finding(facts, stacks, whole)


def _is_felt(facts: Facts, cost_s: float) -> bool:
    """Whether it is noticed in the run, or takes much of the steps' time beside compiling."""
    return cost_s >= NOTICED * facts.wall_s or cost_s >= max(WORTH_SAYING * facts.wall_s, DEAR * facts.working_s)


def _finding(facts: Facts, stacks: list[int], whole: Counted) -> Finding:
    name = " and ".join(sorted(map(facts.text, whole.functions)))
    return facts.finding(
        "host_callback",
        facts.place(stacks[0]),
        operation=name,
        count=whole.count,
        counted=Matching(HostCallbacks, ("stack",), frozenset((stack,) for stack in stacks), count="calls"),
        cost_s=whole.ns / 1e9,
        cause=(
            f"A program calls Python here while it runs, by {name}: {times(whole.count)}, "
            f"{duration(whole.ns / 1e9)} in all. Each time it stops until Python has what it shows and has run, and "
            "nothing of it can be fused over this line."
        ),
        advice=_COMPUTED if "pure_callback" in name else _SHOWN,
    )


#: a callback without results is there for its effect, and a pure one for its results
_SHOWN = (
    "Return the values from the jitted function (jax.lax.scan stacks what each turn returns), and look at them after "
    "the call; where some turns are enough, call back under jax.lax.cond. What Python has to compute for the program, "
    "write with jnp, or do between two calls."
)
_COMPUTED = (
    "Write with jnp what Python computes for the program (jax.scipy has interpolators, solvers, special functions), or "
    "do it between two calls, for all turns at once. Under jax.vmap, vmap_method='sequential' calls Python for each "
    "element, and 'expand_dims' once, with all."
)
KIND = Kind(find, blamed_for=("max_idle",))
