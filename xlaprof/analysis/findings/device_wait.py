"""device_wait: every step waits for the device and reads nothing, so that the next one is prepared too late.

``block_until_ready`` in a loop, left over from a measurement. Cost: the time that the run would be shorter without.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.jit import WaitTally
from xlaprof.analysis.model import Finding
from xlaprof.analysis.principles import MANY, NOTICED
from xlaprof.analysis.sums import grouped, merged
from xlaprof.analysis.timeline.rhythm import in_all
from xlaprof.analysis.whatif import replay
from xlaprof.events import DeviceWait
from xlaprof.text.quantities import duration, times


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line."""
    steps = facts.full_steps or facts.outer_steps
    waits = {stack: one.rhythm.steps for stack, one in facts.run.jit.waits.items()}
    steady = (stack for stack, often in waits.items() if often >= MANY and in_all(often, steps))
    places = {stack: facts.place(stack) for stack in steady}
    # else there is nothing to change: equinox.filter_jit waits by itself
    known = (stack for stack, place in places.items() if place.line and not place.library)
    for stacks in grouped(known, lambda stack: facts.place(stack).at).values():
        cut = replay.reads(stacks)
        gain = facts.what_if.gain_s(cut)
        if gain >= NOTICED * facts.wall_s:
            yield _finding(facts, stacks, cut, gain)


def _finding(facts: Facts, stacks: list[int], cut: replay.Cut, gain: float) -> Finding:
    whole = merged(WaitTally, (facts.run.jit.waits[stack] for stack in stacks))
    return facts.finding(
        "device_wait",
        facts.place(stacks[0]),
        count=whole.count,
        counted=Matching(DeviceWait, ("stack",), frozenset((stack,) for stack in stacks)),
        cost_s=gain,
        cut=cut,
        cause=(
            f"The host waits for the device here {times(whole.count)}, in every step, {duration(whole.dur / 1e9)} in "
            "all, and reads nothing: the next step is prepared only afterwards, and the device has nothing to do "
            "meanwhile."
        ),
        advice=(
            "Leave it out of the loop: what is dispatched runs in order, and a read waits by itself. To bound how far "
            "the host runs ahead, wait for the result of a step or two ago; to measure, wait once, after the loop."
        ),
        rhythm=whole.rhythm.text(facts.outer_steps),
    )


KIND = Kind(find, blamed_for=("max_idle",))
