"""growing_graph: every graph is larger than the one before it. Cost: the time its compiles took."""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.facts import Facts, seconds
from xlaprof.analysis.model import Finding

VISITS = 4  # growths in a row
_FACTOR = 1.2


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each barrier or read whose graphs grow."""
    for stack, site in facts.run.sites.items():
        visits, before, after = site.longest_growth
        if visits < VISITS or after < before * _FACTOR:
            continue
        cost = sum(record.dur for record in facts.run.compiles if record.stack == stack and record.nth) / 1e9
        yield facts.finding(
            "growing_graph",
            facts.names.place(stack),
            count=visits,
            cost_s=cost,
            cause=(
                f"The graph that ends here grew {visits} times in a row, from {before:,} to {after:,} operations, so "
                f"each is compiled anew ({seconds(cost)} in all): a step carries on what the steps before it recorded."
            ),
            advice=(
                "Detach what is carried from step to step (.detach()) and end every step with a barrier, so that "
                "each graph starts from computed tensors."
            ),
        )
