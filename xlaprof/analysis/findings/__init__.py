"""Findings: one file for each kind, with a ``KIND``. A new kind is a new file here, its page and its test."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import msgspec

from xlaprof.analysis.evidence.counted import ReadEvents
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import unbarred
from xlaprof.analysis.model import Finding
from xlaprof.analysis.principles import NOTICED
from xlaprof.analysis.sums import grouped
from xlaprof.text.quantities import duration

#: Findings weighed against each other. Each takes two replays; further ones are ranked by their own gain, which is
#: small.
_WEIGHED = 12
_READ, _OF_VALUES = ("fallback", "transfer"), ("size", "argument")  # kinds that read; changes that a value makes
_MOVES = (*_READ, "upload")  # kinds that move values between host and device
_FAR = 3  # times: a gain so far below the cost needs a reason,
_ALIKE = 0.1  # gains that differ by this part of the larger are one
#: times: no prediction is better; a gain so little above the cost is the cost, a larger one needs a reason
_EXACT = 1.05


def names() -> tuple[str, ...]:
    """The kinds of findings: the files of this package, in the order of their names."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@cache
def kinds() -> dict[str, Kind]:
    """What each kind declares, by name."""
    return {name: importlib.import_module(f"{__name__}.{name}").KIND for name in names()}


def find(facts: Facts) -> tuple[Finding, ...]:
    """All findings of a run, the one whose fix gives back most first."""
    known = kinds()
    made = _reads(facts, [finding for kind in known.values() for finding in kind.find(facts)])
    made = _side_by_side(facts, _ended_by_one_change(facts, made))
    found = [
        msgspec.structs.replace(finding, severity="high") if known[finding.kind].leads(finding) else finding
        for finding in made
        if finding not in facts.aside
    ]
    found.sort(key=lambda finding: -max(finding.gain_s, finding.cost_s))
    found[:_WEIGHED] = [
        msgspec.structs.replace(finding, gain_last_s=facts.gain_last_s(finding)) for finding in found[:_WEIGHED]
    ]
    found = [_with_reason(facts, _within_cost(finding)) for finding in found]

    def rank(one: Finding) -> tuple[Any, ...]:
        return not known[one.kind].leads(one), -_worth_s(one), -one.cost_s, one.kind, *one.place.at, one.id

    return _with_unique_ids(sorted(found, key=rank))


def _joined(
    facts: Facts,
    found: list[Finding],
    end: Callable[[Finding], Hashable | None],
    leads: Callable[[Finding], object],
) -> list[Finding]:
    """A consequence is a part of its cause: what one change ends is one finding, with the costs of all of it.

    ``end``: the change; None: no other finding ends with it. The one for which ``leads`` is largest is the cause.
    """
    joined = []
    for several in grouped(found, lambda one: id(one) if (change := end(one)) is None else change).values():
        leading = max(several, key=leads)  # type: ignore[arg-type]
        others = [one for one in several if one is not leading]
        # the same once more; or one of the two moves a value and the other is what that makes
        parts = [one for one in others if one.kind in (leading.kind, *_MOVES) or leading.kind in _MOVES]
        joined.append(facts.joined(leading, parts) if parts else leading)
        joined += [one for one in others if one not in parts]
    return joined


def _reads(facts: Facts, found: list[Finding]) -> list[Finding]:
    """A read is a part of what makes it dear: of the recompile that its value makes at the same line, or of the missing
    barrier whose graph, of all turns of a loop, it waits for."""
    # where a value becomes a part of the graph, and does not only decide on it
    of_value = (one for one in reversed(found) if one.change is not None and one.change.what in _OF_VALUES)
    made = {_line(one): one.id for one in of_value if one.kind == "recompile" and one.id not in facts.ended_by}
    loop = facts.once(unbarred)
    turns = -1
    if loop is not None and loop.loop.line:  # once for each graph of the loop, which a barrier ends, or a read
        ends = (tally.count for (stack, _), tally in facts.run.reads.items() if stack == loop.stack)
        turns = facts.run.sites[loop.stack].executed or sum(ends)

    def end(one: Finding) -> Hashable | None:
        waits = one.kind in _READ and isinstance(one.counted, ReadEvents) and one.count <= turns
        if one.kind == "missing_barrier" or waits:
            return "turns"
        return _line(one) if _line(one) in made and (one.kind in _READ or one.id == made[_line(one)]) else None

    return _joined(facts, found, end, lambda one: one.kind not in _READ)


def _ended_by_one_change(facts: Facts, found: list[Finding]) -> list[Finding]:
    """The paths and numbers that a value decides on belong to the read of it, the gaps in which the device waits for an
    upload to that, and all that an option ends to what costs most of it."""

    def end(one: Finding) -> Hashable | None:
        return None if one in facts.aside else facts.ended_by.get(one.id)

    return _joined(facts, found, end, lambda one: (one.kind in _MOVES, one.cost_s))


def _side_by_side(facts: Facts, found: list[Finding]) -> list[Finding]:
    """Lines of a function that read, or bring to the device, to one end, or by one line of a library: without one the
    next waits as long."""

    def end(one: Finding) -> Hashable | None:
        place = one.place
        moves = one.kind in _MOVES and (one.kind != "fallback" or place.library)
        if not moves or not place.line or one in facts.aside:
            return None
        return one.kind, place.file, place.func, place.library[:1], one.operation, one.count, one.advice

    return _joined(facts, found, end, lambda one: -one.place.line)


def _line(one: Finding) -> Hashable:
    return one.place.file, one.place.line, one.place.library


def _within_cost(finding: Finding) -> Finding:
    """A gain that exceeds the cost by less than predictions are exact to is the cost, and one after all others that
    differs little from that alone is the same."""
    gain, each, last = finding.gain_s, finding.gain_per_step_s, finding.gain_last_s
    if finding.cost_s < gain <= _EXACT * finding.cost_s:
        gain, each = finding.cost_s, min(each, finding.cost_per_step_s)
    if last is not None and finding.cost_s < last <= _EXACT * finding.cost_s:
        last = finding.cost_s
    if last is not None and abs(last - gain) <= _ALIKE * max(last, gain):
        last = None
    return msgspec.structs.replace(finding, gain_s=gain, gain_per_step_s=each, gain_last_s=last)


def _with_reason(facts: Facts, finding: Finding) -> Finding:
    """Says why a fix gives back much less, or more, than the finding costs."""
    last = finding.gain_s if finding.gain_last_s is None else finding.gain_last_s
    least, most = sorted((finding.gain_s, last))
    if most * _FAR < finding.cost_s and finding.cost_s >= NOTICED * facts.total_s:
        why = "most of that time something else would be waited for"
    elif most > finding.cost_s > 0:
        alone = finding.gain_s > finding.cost_s
        why = f"{duration(most - finding.cost_s)} more than it costs, because {facts.goes_with(finding, alone)}"
    else:
        return finding
    gain = f"{'up to ' * (least * _EXACT < most)}{duration(most)}"
    return msgspec.structs.replace(finding, cause=f"{finding.cause} A fix gives back {gain}: {why}.")


def _worth_s(finding: Finding) -> float:
    """The gain of a fix: the mean of its gains as the first and as the last fix, for two defects may hide each other.

    (Of two defects this is Shapley's value.)
    """
    last = finding.gain_s if finding.gain_last_s is None else finding.gain_last_s
    return (finding.gain_s + last) / 2


def _with_unique_ids(found: list[Finding]) -> tuple[Finding, ...]:
    """Lines with the same code give the same id: from the second one on, in order of lines, it gets a number."""
    uses: dict[str, int] = {}
    numbered: dict[int, Finding] = {}
    for i in sorted(range(len(found)), key=lambda i: found[i].place.line):
        finding = found[i]
        uses[finding.id] = nth = uses.get(finding.id, 0) + 1
        numbered[i] = finding if nth == 1 else msgspec.structs.replace(finding, id=f"{finding.id}-{nth}")
    return tuple(numbered[i] for i in range(len(found)))
