"""idle_gap: the device idles, step after step, while the host does something else.

Only what the program's own Python does is a finding of this kind: a named scope, plain Python between two lines,
waiting for data, garbage collection. Idle time of compiles, reads and fallbacks belongs to their findings; that of
tracing and dispatch is what a step needs. Cost: the idle time blamed on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis import host
from xlaprof.analysis.facts import Facts, seconds
from xlaprof.analysis.idle import Cause, Tally
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import culprit, span

SHARE = 0.05  # of the analysed window, compiles left out
_LEAST = 3  # gaps
_NOISE_NS = 1_000_000  # mean length below which a gap is noise


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each scope, stretch of Python or other activity of the host."""
    compiling = facts.run.window.idle.causes.get(host.COMPILE)
    window = max(1, facts.idle.window_s * 1e9 - (compiling.total if compiling else 0))
    tallies: dict[tuple[str, str, int], tuple[Cause, Tally]] = {}
    for cause, tally in facts.run.window.idle.causes.items():
        if isinstance(cause, tuple):
            before, after = facts.names.bracket(*cause)
            key = ("python", f"{before.file}:{before.line}-{after.file}", after.line)
        elif cause in (host.DATA, host.GC) or cause >= host.SCOPE:
            key = ("cause", str(cause), 0)
        else:
            continue
        if key not in tallies:
            tallies[key] = (cause, Tally())
        tallies[key][1].merge(tally)
    for cause, tally in tallies.values():
        if tally.gaps < _LEAST or tally.total < SHARE * window or tally.total < _NOISE_NS * tally.gaps:
            continue
        if tally.most * 2 > tally.total:
            continue  # one long pause, not a habit
        yield _finding(facts, cause, tally, window)


def _finding(facts: Facts, cause: Cause, tally: Tally, window: float) -> Finding:
    cost = tally.total / 1e9
    share = tally.total / window
    what, advice, place, operation = _explain(facts, cause, tally)
    return facts.finding(
        "idle_gap",
        place,
        operation=operation,
        count=tally.gaps,
        cost_s=cost,
        cause=(
            f"The device idles while the host {what}: {seconds(cost)} in {tally.gaps:,} gaps, "
            f"{share:.0%} of the time that was not compiling."
        ),
        advice=advice,
        evidence=(f"{seconds(cost / tally.gaps)} each, longest {seconds(tally.most / 1e9)}",),
    )


def _explain(facts: Facts, cause: Cause, tally: Tally) -> tuple[str, str, Place, str]:
    names = facts.names
    if isinstance(cause, tuple):
        before, after = names.bracket(*cause)
        return (
            f"runs plain Python ({span(before, after)})",
            "Move this work out of the loop or into a background thread (DataLoader workers), or do it on the device.",
            culprit(before, after),
            "",
        )
    if cause == host.DATA:
        return (
            "waits for the data loader",
            "Load ahead: more DataLoader workers, a larger prefetch_factor, or cheaper per-sample work.",
            _longest_pause(facts, host.DATA),
            "data wait",
        )
    if cause == host.GC:
        return (
            "collects garbage",
            "Call gc.freeze() after the set-up, and gc.collect() only between epochs.",
            _longest_pause(facts, host.GC),
            "garbage collection",
        )
    name = names.text(cause - host.SCOPE)
    scope = facts.run.scopes.get(cause - host.SCOPE)
    place = names.place(scope.stack) if scope is not None else NOWHERE
    if not place.line and tally.holes:
        place = culprit(*names.bracket(*max(tally.holes, key=lambda pair: tally.holes[pair])))
    return (
        f"is in scope '{name}'",
        f"Do what '{name}' does before the loop, in a background thread, or on the device.",
        place,
        name,
    )


def _longest_pause(facts: Facts, cause: int) -> Place:
    pauses = {stack: ns for (stack, kind), ns in facts.run.pauses.items() if kind == cause}
    return facts.names.place(max(pauses, key=pauses.__getitem__, default=0))
