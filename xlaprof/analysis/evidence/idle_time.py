"""The idle time of a settled run's devices by cause, the names of the causes, and where the host waited for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from xlaprof.analysis.evidence.activities import innermost
from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, Names
from xlaprof.analysis.places import culprit, short, span, users
from xlaprof.analysis.principles import LITTLE, LOOKED_NS, NAMED
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import Cause, LongGap, Seen
from xlaprof.text.quantities import duration, plural
from xlaprof.text.strings import enumerated


def by_cause(run: Fold) -> dict[Cause, int]:
    """ns of idle time, summed over the devices."""
    causes = {cause: tally.total for cause, tally in run.window.idle.causes.items() if tally.total}
    digests = sum(device.digest_idle for device in run.devices())
    for cause, ns in _spread(digests, causes).items():
        causes[cause] = causes.get(cause, 0) + ns
    return causes


def _spread(total: int, causes: dict[Cause, int]) -> dict[Cause, int]:
    """Divide the digests' idle time, known only as a sum, by the causes in steps recorded in full, without compiles."""
    weights = {cause: ns for cause, ns in causes.items() if cause != host.COMPILE}
    whole = sum(weights.values())
    if not whole:
        return {host.OTHER: total} if total else {}
    shares = {cause: total * ns // whole for cause, ns in weights.items()}
    largest = max(weights, key=lambda cause: weights[cause])
    shares[largest] += total - sum(shares.values())
    return shares


def label(cause: Cause, names: Names) -> str:
    """The name of a cause of idle time: "compile", "scope load", "python train.py:12-19"."""
    if isinstance(cause, Seen):
        if cause.cause in (host.OTHER, host.GLIMPSE, host.WAIT):
            doing = "waiting" if cause.cause == host.WAIT else "python"
            place = names.place(cause.stack)
            return f"{doing} {short(place)}" if place.line else f"{doing} at an unknown line"
        return host.CAUSES[cause.cause]
    if isinstance(cause, tuple):
        before, after = names.bracket(*cause)
        return f"python {span(before, after)}"
    if cause >= host.SCOPE:
        return f"scope {names.text(cause - host.SCOPE)}"
    return host.CAUSES[cause]


def place_of(gap: LongGap, run: Fold) -> Place:
    """The line to show for a gap: that of its main cause, of a scope the line that entered it."""
    if gap.hole != (0, 0):
        return culprit(*run.names.bracket(*gap.hole))
    cause = gap.parts[0][0] if gap.parts else host.OTHER
    scope = run.scopes.get(cause - host.SCOPE) if isinstance(cause, int) else None
    stack = gap.stack or (scope.stack if scope is not None else 0)
    return run.names.place(stack) if stack else NOWHERE


def busy_lines(run: Fold, busy: float, spared: Mapping[int, int]) -> dict[str, float]:
    """ns of the ``busy`` ones of a device, by the line that had it run its programs; without those that are
    ``spared`` there, by stack."""
    lines: Counter[str] = Counter()
    for stack, ran in run.executed_at.items():
        place = users(run.names.place(stack))
        lines[short(place) if place.line else ""] += max(0, ran.ns - spared.get(stack, 0))
    whole = lines.total()  # of steps summed up only their sum is recorded
    return {line: busy * ns / whole for line, ns in lines.items() if line and ns}


def waited(run: Fold, busy: float) -> str:
    """Where the main thread was in calls that wait for the device, of its ``busy`` ns; "" where that is little."""
    lines: Counter[str] = Counter()
    for (stack, _), ns in run.looks_waiting.items():
        lines[short(run.names.place(stack))] += ns
    total = min(busy, lines.total())  # the looks are few
    if total < max(LOOKED_NS, LITTLE * busy):
        return ""
    count = sum(run.look_counts[look] for look in run.looks_waiting)
    named = [f"{name} ({duration(ns / 1e9)})" if len(lines) > 1 else name for name, ns in lines.most_common()]
    at = enumerated(named, NAMED)
    return f" The host waited for it at {at}: about {duration(total / 1e9)} in all, by {plural(count, 'look')}."


def seen_at(
    names: Names, looks: Mapping[tuple[int, str], int]
) -> tuple[defaultdict[str, float], defaultdict[str, float]]:
    """ns by line of the user's, and what of a library's it ran for most of that: of imports, and of the program."""
    imports, lines = defaultdict[str, float](float), defaultdict[str, float](float)
    below: defaultdict[Place, Counter[int]] = defaultdict(Counter)  # the user's line -> stack -> ns
    for (stack, state), ns in looks.items():
        place = users(names.place(stack))
        if state != "import" and place.line:
            below[place][stack] += ns
        else:
            at = short(place) if place.line else place.file.removeprefix("at ") or "a library"  # "at exit"
            (imports if state == "import" else lines)[at] += ns
    for place, stacks in below.items():
        inner = innermost(names, stacks, place)
        lines[f"{short(place)}{f' in {inner.acting.func}' * bool(inner.library)}"] += stacks.total()
    return imports, lines
