"""transfer: a loop that reads values from the device.

Not a finding are reads outside the loop (the result at the end) and rare ones: less than one in ten steps that
cost next to nothing. The reads inside a CPU fallback count as the fallback's.

Cost: what the program would gain if the read did not wait. A read makes host and device take turns: the host
waits for the device, then the device waits until the host has recorded the next graph. Had they overlapped, the
shorter of the two waits would have vanished; so a read costs the shorter of its wait and of the idle time that
follows it, plus the copy itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.facts import Facts, seconds, times
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.sized import INSTEAD
from xlaprof.analysis.tallies import ReadTally

_OFTEN = 0.1  # reads per step
_DEAR = 0.02  # of the time of the steps
_LEAST = 3  # reads that make a habit


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and operation that reads in the loop."""
    groups: dict[tuple[str, int, str, str], tuple[Place, ReadTally]] = {}
    for (stack, op), tally in facts.run.reads.items():
        place = facts.names.place(stack)
        name = facts.names.text(op)
        key = (place.file, place.line, name, "" if place.line else str(stack))
        if key not in groups:
            groups[key] = (place, ReadTally())
        groups[key][1].merge(tally)
    for (_, _, name, _), (place, tally) in groups.items():
        count = _in_loop(facts, tally)
        if count < _LEAST:
            continue
        cost = cost_s(tally)
        often = count > _OFTEN * facts.step_count
        if not often and cost < _DEAR * facts.total_s:
            continue
        yield _finding(facts, place, name, tally, count, cost)


def cost_s(tally: ReadTally) -> float:
    """Seconds that would be gained without the reads of ``tally``."""
    told_in_full = tally.count - tally.told
    if not told_in_full:
        return tally.told_dur / 1e9
    known = tally.dur - tally.told_dur
    each = (tally.serial + max(0, known - tally.wait)) / told_in_full
    return each * tally.count / 1e9


def _in_loop(facts: Facts, tally: ReadTally) -> int:
    if facts.named_steps:
        return tally.in_steps
    return tally.looped if facts.run.barriers > 1 else tally.count


def _finding(facts: Facts, place: Place, name: str, tally: ReadTally, count: int, cost: float) -> Finding:
    steps = facts.step_count
    rate = "in every step" if tally.steps >= 0.9 * steps else f"in {tally.steps or count} of {steps} steps"
    if not steps:
        rate = "in the loop"
    per_read = tally.dur / max(1, tally.count) / 1e9
    scalar = "_local_scalar_dense" in name or "bool" in name
    sized = INSTEAD.get(name)
    what = "one number" if scalar else f"the size of {name}'s result" if sized else "a tensor"
    cause = (
        f"The host reads {what} from the device {rate} and stops until it is computed: "
        f"{times(count)}, {seconds(tally.dur / 1e9)} waited ({seconds(per_read)} each), "
        "and the device has nothing to do until the host has caught up."
    )
    return facts.finding(
        "transfer",
        place,
        operation=name,
        count=count,
        cost_s=cost,
        cause=cause,
        advice=f"{sized}." if sized else _advice(place, scalar, steps),
        evidence=(
            f"{seconds(tally.wait / 1e9)} waiting for the device, {tally.bytes:,} bytes",
            f"longest {seconds(tally.most / 1e9)}",
        ),
    )


def _advice(place: Place, scalar: bool, steps: int) -> str:
    code = place.code
    if code.startswith(("if ", "while ", "elif ", "assert ")):
        return "Decide on the device (torch.where, a mask), or look at the value only every N steps."
    if scalar or ".item()" in code:
        value = "loss" if "loss" in code else "value"
        every = max(10, 10 ** (len(str(max(1, steps))) - 1))
        return f"Keep the {value} on the device (.detach()) and read it every {every} steps, or at the end."
    return "Do this work on the device, or hand the tensor over once, after the loop."
