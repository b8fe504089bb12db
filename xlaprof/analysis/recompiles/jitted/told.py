"""What programs were made again for, as findings: the cause, and the advice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from xlaprof.analysis.evidence.counted import Known, values
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.model import Finding, FromTo, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import LITTLE, MOST, NAMED
from xlaprof.analysis.uses import selection
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated

from .causes import (
    CALLED,
    DEFINED_INSIDE,
    OF_A_LIBRARY,
    OUTSIDE,
    PARTS,
    TEXTS,
    caller_of,
    changed_too,
    evidence_of,
    filled,
    from_to,
    length_given,
    made,
    made_anew,
    of_a_method,
    root_of,
    what_it_holds,
)
from .sizes import one_or_few, sizes_along
from .sorting import JAX, JOINS, Group, calls_of, is_list, joins_pieces, ns, sort_out

_METHOD = re.compile(r"\w\.(\w+)$")  # of a class, which no function stands between


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each function and cause."""
    for group in facts.once(sort_out).found:
        yield _finding(facts, group)


def _finding(facts: Facts, cause: Group) -> Finding:
    group, records = cause.lead, sorted(cause.records, key=lambda one: one.event.t)
    event, change = group[0].event, group[0].event.changes[0]
    changes = [record.event.changes[0] for record in group]
    known = TEXTS if event.code else TEXTS | OUTSIDE
    selects = not event.code and change.kind == "shape" and _selecting(facts, records).line
    passed = joins_pieces(facts, group) and any(facts.text(one.event.func) not in JOINS for one in records)
    kind = "selection" if selects else "list" if passed and is_list(group) else change.kind
    text = known.get(kind, TEXTS["function"])
    way = OUTSIDE["list"].advice if passed else text.advice
    advice = way if isinstance(way, str) else way(group)
    if not event.code and len(calls_of(facts, event, records)) >= MOST * len(records):
        advice = CALLED
    fields = _fields(facts, cause)
    if too := changed_too(group):
        advice += f" So with {enumerated(too, NAMED)}, changed at the same calls: to mend one alone spares nothing."
    if change.kind == "function" and fields["beside"]:
        advice = DEFINED_INSIDE
    elif change.kind == "function" and facts.place(event.stack).library and not made_anew(group):
        advice = OF_A_LIBRARY
    cost = ns(records) / 1e9
    was = "were" if "," in (name := fields["function"]) else "was"
    again = [one for one in records if one.event.code and not is_list(group)]
    what = f"{name} {was} compiled again {times(len(again))}" if event.code else plural(len(records), "program")
    if again and len(again) < len(records):
        what += f", and {_outside(facts, records)}"
    return facts.finding(
        "recompile",
        facts.place(event.cleared or event.stack),  # what is to be changed
        operation=JAX,
        count=len(records),
        counted=Known(tuple(Moment(one.event.t, one.event.dur, detail=from_to(one)) for one in records)),
        cost_s=cost,
        cause=f"{filled(text.cause, fields)}: {what}, {duration(cost)} in all.",
        advice=filled(advice, fields),
        change=FromTo(change.kind, change.old, change.new),
        evidence=listed([evidence_of(record) for record in records]),
        discriminator=f"{name} {change.kind} {change.name}",
        also=[facts.place(one) for record in records for one in (record.event.stack, record.event.code)],
        values=values((one.old, one.new) for one in changes),
    )


def _selecting(facts: Facts, records: list[JitRecord]) -> Place:
    """The line that decides by values how many elements the operations have; NOWHERE: none is seen to."""
    lines = (facts.place(one.event.stack) for one in records)
    return next((line for line in lines if selection(line.code)), NOWHERE)


def _along(facts: Facts, cause: Group) -> str:
    """What is compiled for each length of a list that is joined, with the lines."""
    own = [one for one in cause.along if one.event.code]
    outside = [one for one in cause.along if not one.event.code]
    calls = dict.fromkeys(f"{facts.text(one.event.func)} at {short(facts.place(one.event.stack))}" for one in own)
    told = [*islice(calls, NAMED)]
    return ", and ".join([*told, *([_outside(facts, outside)] if outside else [])])


def _outside(facts: Facts, records: list[JitRecord]) -> str:
    """What of them are operations outside of jitted functions."""
    outside = [one for one in records if not one.event.code]
    names = dict.fromkeys(facts.text(one.event.func) for one in outside)
    lines = dict.fromkeys(short(facts.place(one.event.stack)) for one in outside)
    where = ", ".join(islice(lines, NAMED))
    return f"{', '.join(islice(names, NAMED))} at {where}, outside of any jitted function, {times(len(outside))}"


def _fields(facts: Facts, cause: Group) -> dict[str, str]:
    group, event = cause.lead, cause.lead[0].event
    change = event.changes[0]
    went = {(one.old, one.new) for one in (record.event.changes[0] for record in group)}
    # of the first call: as many differ in those after it, or what is computed of them
    others = [one.name for one in event.changes if one.kind == change.kind and one.name != change.name]
    others = changed_too(group, LITTLE) if change.kind in PARTS else others
    of = group if is_list(group) else [one for one in cause.records if one.event.code] or cause.records
    functions = dict.fromkeys(facts.text(record.event.func) for record in of)
    more = f", and {plural(len(went) - 1, 'further change')}" if len(went) > 1 else ""
    line = facts.place(event.stack)
    method = _METHOD.search(line.func)
    selecting, amounts = _selecting(facts, cause.records), sorted(sizes_along(group)) or [0]
    several = len({record.event.changes[0].name for record in group}) > 1  # elements: it is the list that differs
    return {
        "name": (re.sub(r"\[\d+\]$", "", change.name) if several else change.name) or "an argument",
        "root": root_of(change.name) or "the argument",
        "there": "jax.NamedSharding(mesh, jax.P())" if "," in change.new else "device",
        "old": change.old or "nothing",
        "new": change.new or "nothing",
        "went": f"from {change.old} to {change.new}{more}",
        "dim": str(max(change.dim, 0)),
        "line": short(line),
        "sizes": one_or_few(sizes_along(of)),
        "function": ", ".join(list(functions)[:4]),
        "others": f" (and of {', '.join(others[:3])})" if others else "",
        "besides": f" (and {', '.join(others[:3])})" if others else "",
        "caller": caller_of(line),
        "method": f" ({of_a_method(method[1])})" if method else "",
        "cleared": f" at {short(facts.place(event.cleared))}" if event.cleared else "",
        "selected": f"{selection(selecting.code)} at {short(selecting)}",
        "amounts": f"{amounts[0]:,} to {amounts[-1]:,}",
        "held": what_it_holds(of if change.kind == "function" else group),
        "it": "each" if len(functions) > 1 else "it",
        **made(facts, of),
        "static": length_given(facts.place(event.stack).code) or "...",
        "arrays": plural(most, "array") if (most := max(one.event.arrays for one in group)) else "arrays",
        "along": _along(facts, cause),
        "config": f": {change.name} went from {change.old} to {change.new}" if change.name else "",
    }
