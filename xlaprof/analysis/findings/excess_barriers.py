"""excess_barriers: a step cut into many small graphs. Cost: the host time of the barriers but one per step."""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.facts import Facts, seconds
from xlaprof.analysis.model import Finding

LINES = 3  # barriers at different lines in one step
_SMALL = 200  # operations between two


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding, at the barrier that cuts off least."""
    steps = facts.step_count
    if steps < 3:
        return
    sites = {
        stack: site
        for stack, site in facts.run.sites.items()
        if site.trigger != "read" and (site.in_steps if facts.named_steps else site.executed) >= 0.8 * steps
    }
    lines = {(place.file, place.line) for place in map(facts.names.place, sites)}
    visits = sum(site.executed for site in sites.values())
    ops = sum(site.ops for site in sites.values())
    if len(lines) < LINES or ops > _SMALL * visits:
        return
    smallest = min(sites, key=lambda stack: sites[stack].ops / sites[stack].executed)
    largest = max(sites.values(), key=lambda site: site.ops / site.executed)
    cost = sum(site.dispatch.total for site in sites.values() if site is not largest) / 1e9
    count = visits - largest.executed
    per_step = round(visits / steps)
    numbers = sorted(line for _, line in lines)
    yield facts.finding(
        "excess_barriers",
        facts.names.place(smallest),
        count=count,
        cost_s=cost,
        cause=(
            f"Each step is cut into {per_step} graphs of {round(ops / visits)} operations on average, by barriers at "
            f"lines {', '.join(map(str, numbers))}: XLA cannot fuse across them and each costs the host "
            f"{seconds(cost / max(1, count))}."
        ),
        advice=f"Keep the barrier at the end of the step (line {numbers[-1]}) and remove the others.",
    )
