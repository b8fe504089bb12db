"""growth: what should be the same in every step rises: the device's memory, the number of tensors, the time of a step.

Growing graphs are a kind of their own. False alarms are worse than late ones: only long, steady, large rises count, and
a list of detached numbers (what one is told to keep) is none.

Cost: of steps that get slower, the time above that of the first ones; of memory none that can be told in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.facts import Facts, seconds
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.series import climb, rise

_STEPS = 100  # fewer tell nothing of a trend, nor whether a list of results is full some time
_STEPS_OF_HISTORY = 40  # the same where results keep their history: nobody means to
_SLOWER = 1.3
_LARGER = 1.25
_BYTES = 1 << 20
_MORE = 1.5
_TENSORS = 200
_EACH_STEP = 4.0  # tensors
#: lines whose tensors are kept, or tensors kept in each step, from which on it is a result with its history that is
_LINES = 3
_HISTORY = 2.5


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding for what is alive, and one for each name of steps."""
    alive = _alive(facts)
    if alive is not None:
        yield alive
    yield from _slower(facts, alive)


def _alive(facts: Facts) -> Finding | None:
    readings = facts.run.lives.values
    if not readings or readings[-1].step - readings[0].step < _STEPS_OF_HISTORY:
        return None
    tensors = climb([(one.step, one.tensors) for one in readings])
    size = climb([(one.step, one.bytes) for one in readings])
    steps = (readings[-1].step - readings[0].step) * (1 - 0.2)
    heavier = size is not None and size.last >= _LARGER * size.first and size.last - size.first >= _BYTES
    more = (
        tensors is not None
        and tensors.last >= _MORE * tensors.first
        and tensors.last - tensors.first >= max(_TENSORS, _EACH_STEP * steps)
    )
    if not heavier and not more:
        return None
    held = [(facts.names.place(stack), count) for stack, count in facts.run.held]
    place = held[0][0] if held else NOWHERE
    others = tuple(dict.fromkeys(one for one, _ in held[1:] if one.line and one != place))
    first, last = readings[0], readings[-1]
    passed = last.step - first.step
    several = last.tensors - first.tensors >= _HISTORY * passed
    history = several or len(others) + 1 >= _LINES
    if passed < _STEPS and not several:
        return None
    numbers = f"from {first.tensors:,} tensors ({_bytes(first.bytes)}) to {last.tensors:,} ({_bytes(last.bytes)})"
    kept = f"; what stays was made at line {place.line}" if place.line else ""
    what = ", with all that its gradient needs," if history else ""
    return facts.finding(
        "growth",
        place,
        count=last.tensors - first.tensors,
        cost_s=0.0,
        cause=(
            f"What is alive on the device grows all the time, {numbers} in {passed:,} "
            f"steps{kept}{what} and something keeps it, a list or an attribute."
        ),
        advice=(
            "Keep a detached copy (.detach()), or the number read now and then, and let go of what earlier steps made."
        ),
        evidence=tuple(
            f"line {one.line}: {one.code} ({count} of the tensors looked at)" for one, count in held if one.line
        ),
        confidence="high" if place.line else "medium",
        rhythm="every step",
        also=others,
        remedy="losses.append(loss.detach())  # not: losses.append(loss)" if history else "",
        discriminator="alive",
    )


def _slower(facts: Facts, alive: Finding | None) -> Iterator[Finding]:
    for name, tally in facts.run.steps.items():
        series = tally.series
        slower = rise(series.values) if series.seen >= _STEPS else None
        if slower is None or slower.last < _SLOWER * slower.first:
            continue
        cost = max(0.0, tally.rest.total - slower.first * tally.rest.count) / 1e9
        place = alive.place if alive is not None else _end_of_step(facts)
        called = f"Steps '{facts.names.text(name)}'" if name else "Steps"
        because = "; so does what is alive on the device" if alive is not None else ""
        yield facts.finding(
            "growth",
            place,
            operation=facts.names.text(name),
            count=series.seen,
            cost_s=cost,
            cause=(
                f"{called} get slower all the time, from {seconds(slower.first / 1e9)} to {seconds(slower.last / 1e9)} "
                f"over {series.seen:,} of them{because}."
            ),
            advice=(
                "Look for what grows with the number of steps: a list that is walked in each, a history that is kept, "
                "or a file that is read from its beginning."
            ),
            confidence="medium",
            rhythm="every step",
            discriminator="time",
        )


def _end_of_step(facts: Facts) -> Place:
    """The barrier reached most often: the step that is slower ends there."""
    sites = facts.run.sites
    stack = max(sites, key=lambda stack: sites[stack].executed, default=0)
    return facts.names.place(stack)


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
