"""fallback: an operation without a lowering ran on the CPU, its inputs and outputs copied there and back.

Not a finding is one that ran once, outside the steps. Cost: all of its time, transfers included.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis import sized
from xlaprof.analysis.facts import Facts, seconds, times
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.tallies import FallbackTally

_EIGEN = "Use torch.linalg.eigh if the matrix is symmetric, or matrix powers if the largest eigenvalue is enough"
#: What to write instead, by operation.
INSTEAD = {
    **sized.INSTEAD,
    "aten::linalg_eig": _EIGEN,
    "aten::linalg_eigvals": _EIGEN,
    "aten::_linalg_eigvals": _EIGEN,
}


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and operation."""
    groups: dict[tuple[str, int, str, str], tuple[Place, FallbackTally]] = {}
    for (stack, op), tally in facts.run.fallbacks.items():
        place = facts.names.place(stack)
        name = facts.names.text(op)
        key = (place.file, place.line, name, "" if place.line else str(stack))
        if key not in groups:
            groups[key] = (place, FallbackTally())
        groups[key][1].merge(tally)
    for (_, _, name, _), (place, tally) in groups.items():
        if name == "aten::_local_scalar_dense":
            continue  # a read
        if tally.count < 2 and not tally.in_steps:
            continue
        cost = tally.dur / 1e9
        reads = f", with {tally.reads} transfer{'s' * (tally.reads != 1)}" if tally.reads else ""
        yield facts.finding(
            "fallback",
            place,
            operation=name,
            count=tally.count,
            cost_s=cost,
            cause=(
                f"{name} has no lowering, so it ran on the CPU {times(tally.count)}{reads}: {seconds(cost)} "
                "in which the device waited for the host."
            ),
            advice=_advice(name),
            evidence=(f"{seconds(cost / tally.count)} each, longest {seconds(tally.most / 1e9)}",),
        )


def _advice(name: str) -> str:
    base = name.partition(".")[0]
    instead = INSTEAD.get(name) or INSTEAD.get(base)
    if instead:
        return f"{instead}."
    return f"Replace {base.removeprefix('aten::')} by operations that run on the device, or move it out of the loop."
