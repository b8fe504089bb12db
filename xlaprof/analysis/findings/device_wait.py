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
from xlaprof.analysis.timeline.rhythm import in_all
from xlaprof.analysis.whatif import replay
from xlaprof.events import DeviceWait
from xlaprof.text.quantities import duration, times


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line."""
    lines: dict[tuple[str, int], list[int]] = {}
    for stack, tally in facts.run.jit.waits.items():
        if tally.rhythm.steps >= MANY and in_all(tally.rhythm.steps, facts.full_steps or facts.outer_steps):
            place = facts.names.place(stack)
            if place.line:  # else there is nothing to change
                lines.setdefault(place.at, []).append(stack)
    for stacks in lines.values():
        cut = replay.reads(stacks)
        gain = facts.what_if.gain_s(cut)
        if gain >= NOTICED * facts.wall_s:
            yield _finding(facts, stacks, cut, gain)


def _finding(facts: Facts, stacks: list[int], cut: replay.Cut, gain: float) -> Finding:
    whole = WaitTally()
    for stack in stacks:
        whole.merge(facts.run.jit.waits[stack])
    return facts.finding(
        "device_wait",
        facts.names.place(stacks[0]),
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
