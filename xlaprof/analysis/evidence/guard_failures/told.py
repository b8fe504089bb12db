"""Recompilations of ``torch.compile``, each cause as a finding: in words, with what it cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis import uses
from xlaprof.analysis.evidence import library_options
from xlaprof.analysis.evidence.breaks import function_name
from xlaprof.analysis.evidence.counted import Known, values
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.guard_failures import guards as texts
from xlaprof.analysis.evidence.guard_failures.case import Case, container, named, sizes_of_dim
from xlaprof.analysis.evidence.guard_failures.case import told as spoken_of
from xlaprof.analysis.evidence.guard_failures.sorting import (
    LIMIT,
    Blamed,
    cost_s,
    is_a_librarys,
    is_gradless,
    limit_hit,
    sort_out,
    specialized,
    to_blame,
)
from xlaprof.analysis.fold.torch_compile import RecompileRecord
from xlaprof.analysis.model import Finding, FromTo, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import cited
from xlaprof.analysis.principles import HABIT, NAMED
from xlaprof.analysis.sums import grouped, median
from xlaprof.events import DynamoLimit, Guard
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated

#: kinds of guards on one thing that the function is given or finds, each of which has to be mended for itself
_OF_ONE_THING = frozenset({"value", "length", "shape", "dtype", "requires_grad", "stride", "rank"})
_Subject = tuple[int, str, str]  # a function, a kind of guard, what it is on


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line, kind of change and function."""
    known = sort_out(facts)
    groups = [*known.found, *known.behind.values(), *known.chosen]
    necessary = {_subject(record, to_blame(record)) for record in known.necessary}
    for recompiles in known.found:
        others = {_subject(record, one) for group in groups if group is not recompiles for record, one, _ in group}
        yield _finding(facts, recompiles, list(_with_it(recompiles, others | necessary)))
    for limit, step in facts.run.torch_compile.limits:
        yield _limit_alone(facts, limit, step)


def limit_clause(facts: Facts, hit: tuple[DynamoLimit, int] | None) -> Iterator[str]:
    """The clauses on hitting a limit, without a full stop: what runs eagerly since, and what steps took before."""
    if hit is not None:
        limit, step = hit
        since = f"since step {step}" if step > 0 else "since then"
        value = f" = {limit.value}" if limit.value else ""
        yield (
            f"with that torch._dynamo.config.{limit.limit}{value} was hit, and {since} whatever fits no version runs "
            "eagerly, silently"
        )
        around = steps_around_limit(facts, (limit.code, limit.func))
        if around is not None and around.since_s > around.before_s > 0:
            beside = "" if around.steady else "beside compiling, "  # that is more than a step: it is slower by more
            took = f"{duration(around.before_s)} before and takes {duration(around.since_s)} since"
            yield f"{beside}a step took {took}"


class AroundLimit(NamedTuple):
    """What a step took, in the median, before a function hit a limit, and takes since."""

    before_s: float
    since_s: float
    steady: bool  # steps before that compiled nothing; else it is what others took beside compiling


def steps_around_limit(facts: Facts, key: tuple[int, int]) -> AroundLimit | None:
    """Of a function; None where it hit no limit, or where there are too few steps.

    The first run of what was compiled takes longer than others: where enough steps compiled nothing, they alone count.
    """
    known = facts.run.torch_compile
    function = known.functions.get(key)
    for name, before in function.steps_before.items() if function is not None else ():
        tally = facts.run.steps.get(name)
        hit = before[-1].number + 1 if before else 0  # the step in which that was
        since = [one for one in known.took(name, tally) if one.number > hit and not one.compiling] if tally else []
        if min(len(before), len(since)) >= HABIT:
            steady = [one for one in before if not one.compiling]
            chosen = steady if len(steady) >= HABIT else before
            before_s, since_s = (median(one.dur for one in several) / 1e9 for several in (chosen, since))
            return AroundLimit(before_s, since_s, chosen is steady)
    return None


def eager_ns(facts: Facts, *keys: tuple[int, int]) -> dict[int, int]:
    """By stack: the time in which looks saw these functions (definition, name) since a limit was hit.

    They ran eagerly then, but for what fits a version.
    """
    places = [(facts.place(code), facts.text(func).rpartition(".")[2]) for code, func in keys]

    def in_one(line: Place) -> bool:
        name = line.func.rpartition(".")[2]
        return any((line.file, name) == (one.file, func) and line.line >= one.line for one, func in places)

    looks = facts.run.looks_limited.items()
    return {stack: ns for stack, ns in looks if any(in_one(line.acting) for line in facts.names.frames(stack))}


def _compiled_again(facts: Facts, records: list[RecompileRecord]) -> str:
    """ "forward was compiled again 3 times", "forward and the part of forward behind line 7 were .. 3 times each"."""
    counts = Counter((one.event.code, one.event.func, one.event.resumed) for one in records)
    parts = []
    for code, func, resumed in counts:
        name, line = function_name(facts, code, func) or "the function", facts.place(resumed).line
        parts.append(f"the part of {name} behind line {line}" if line and len(counts) > 1 else name)
    each = list(counts.values())
    if len(each) <= 1:
        return f"{parts[0] if parts else 'the function'} was compiled again {times(sum(each))}"
    together = f"{enumerated(parts, len(parts))} were compiled again"
    return f"{together} {times(each[0])} each" if len(set(each)) == 1 else f"{together} {times(sum(each))} together"


def _changed_with_it(guards: Iterable[Guard]) -> Iterator[str]:
    """What each thing changed from and to at first; of many, as the layers of a cache, how many more there are."""
    by_name = grouped(guards, attrgetter("subject"))
    for name, ones in islice(by_name.items(), NAMED):
        more = len({(one.old, one.new) for one in ones}) - 1
        again = f" (and {plural(more, 'more such change')})" if more else ""
        yield f"{name} changed with it, from {ones[0].old} to {ones[0].new}{again}, a cause by itself"
    if (left := len(by_name) - NAMED) > 0:
        yield f"so did {left:,} more, {'each ' * (left > 1)}a cause by itself"


def _finding(facts: Facts, recompiles: list[Blamed], with_it: list[Guard]) -> Finding:
    """``with_it``: guards on something else that failed with these, each a cause by itself."""
    first, guard, place = recompiles[0]
    case = _case(facts, recompiles)
    # for which call: it passed one tensor twice, or was in another mode
    made = _made_for(facts) if guard.kind == "aliasing" or case.gradless else {}
    guard = spoken_of(guard, (one for record, _, _ in recompiles for one in record.event.guards))
    cost = cost_s(recompiles)
    limit = limit_hit(recompiles)
    function = function_name(facts, first.event.code, first.event.func) or "the function"
    compiled = [(record, one) for record, one, _ in recompiles if record.limit is None]
    moments = [Moment(record.event.t, record.dur, detail=_went(one)) for record, one in compiled]
    changes = {(one.subject, one.old, one.new) for _, one in compiled if one.kind == guard.kind}
    again = f"{_compiled_again(facts, [record for record, _ in compiled])}, {duration(cost)} in all"
    constant = f", and {case.asked} makes a constant of it" if case.asked else ""
    clauses = [f"{texts.cause(guard, len(changes), case)}{constant}: {again}"]
    clauses += _for_another_call(facts, first, made) if case.gradless else ()
    apart = (one for blamed, one in _sizes_with_it(recompiles) if sizes_of_dim(one) != sizes_of_dim(blamed))
    along = [one for one in with_it if case.wide and (one.kind, one.new) == (guard.kind, guard.new)]
    if along:
        clauses.append(f"{enumerated([one.subject for one in along], NAMED)} changed with it")
    clauses += [f"{case.wide} is {guard.new} in each call"] * bool(case.wide)
    with_it = [one for one in with_it if one not in along]
    clauses += _changed_with_it([*with_it, *apart])
    at, clauses = len(clauses), [*clauses, *limit_clause(facts, limit)]
    eager = sum(eager_ns(facts, (first.event.code, first.event.func)).values()) / 1e9 if limit is not None else 0.0
    if eager:
        clauses[at] += f" ({duration(eager)} in {function})"
    advised = _advice(facts, first, guard, place, texts.advice(guard, case, limit[0].limit if limit else ""))
    cases = {one: _case(facts, [(first, one, facts.place(one.stack))]) for one in with_it}
    of_modules = {one: case for one in cases if case.function and _last_of(one) == _last_of(guard)}  # as dropouts' p
    return facts.finding(
        "recompile",
        place,
        operation="" if limit is None else LIMIT,
        count=len(compiled),
        counted=Known(tuple(sorted(moments, key=lambda moment: moment.t))),
        cost_s=cost + eager,
        gain_s=cost,  # of the time in eager mode a compiled version takes a part that is not known
        cause=f"{'; '.join(clauses)}.",
        advice=" ".join([advised, *_too(guard, texts.advice(guard, case), cases | of_modules)]),
        change=FromTo(texts.what(guard), guard.old, guard.new),
        evidence=[*evidence(recompiles), *([f"guard: {texts.code(guard)}"] if guard.text else [])],
        discriminator=f"torch.compile {guard.kind} {guard.subject}",
        # the line that made the guard, the line of the call and that of the definition
        also=[
            facts.place(stack)
            for record, one, _ in recompiles
            for stack in (one.stack, record.event.stack, record.event.code)
        ]
        + [facts.place(one.asked) for one in case.guards]
        + [facts.place(one.stack) for one in with_it]
        + [facts.place(made.get(record.event.against, (0, 0))[0]) for record, _, _ in recompiles],
        values=values(sizes_of_dim(one) for one in case.guards if one.kind == guard.kind),
        remedy="" if with_it else texts.remedy(guard, case),  # half of what has to be changed
    )


def _case(facts: Facts, recompiles: list[Blamed]) -> Case:
    """What the advice for these depends on."""
    first, guard, place = recompiles[0]
    guards = [one for _, one, _ in recompiles]
    compiled = [record for record, _, _ in recompiles if record.limit is None]
    spoken = spoken_of(guard, (one for record, _, _ in recompiles for one in record.event.guards))
    tally = facts.run.torch_compile.functions.get((first.event.code, first.event.func))
    asked = next((there for one in guards if (there := facts.place(one.asked)).line), NOWHERE)
    failed = [one for record, _, _ in recompiles for one in record.event.guards]
    blamed = {name for one in guards for name in (named(one), one.subject) if name}
    number = named(spoken)
    codes = [one.acting.code for one in (asked, place) if one.line]  # what made a constant of it tells more
    needs = (need for code in codes if (need := uses.needed_for(code, number) or uses.needed_by_head(code, number)))
    return Case(
        guards,
        facts.text(tally.backend) if tally is not None else "",
        first.event.dynamic,
        specialized(recompiles),
        next((name for code in codes if (name := uses.takes_number(code, spoken.subject))), ""),
        [one for _, one in _sizes_with_it(recompiles)],
        sum(record.another for record in compiled),
        next(needs, ""),
        list(dict.fromkeys(one for code in reversed(codes) for one in uses.indexed_by(code, number))),
        uses.is_handed_over(facts.place(first.event.stack).acting.code, spoken.subject),
        cited(asked) if asked.line and asked.at != place.at else "",
        is_gradless(facts, first),
        next((one.subject for one in guards if one.kind == "shape" != guard.kind), ""),
        *_widened_by(facts, recompiles),
        next((name for name in map(named, failed) if name and not any(_overlap(name, one) for one in blamed)), ""),
    )


def _widened_by(facts: Facts, recompiles: list[Blamed]) -> tuple[str, str]:
    """Of an input that was a result of the call before, and wider than in the first call: another input that was as
    wide from the start, and the line that computes of it and of what was narrower; "" twice: none is known."""
    first, guard, _ = recompiles[0]
    event = first.event
    changed = {one.subject for record, _, _ in recompiles for one in record.event.guards if one.kind == "dtype"}
    dtypes = tuple(map(_short, (guard.old, guard.new)))
    back = guard.kind == "dtype" and uses.comes_back(facts.place(event.stack).acting.code)
    versions = facts.run.torch_compile.converting if back else []
    for one in (one for version in versions if version.code == event.code for one in version.conversions):
        if one.beside and one.beside not in changed and (one.old, one.new) == dtypes:
            return one.beside, cited(facts.place(one.stack))
    return "", ""


def _short(dtype: str) -> str:
    """ "f32" of "float32", as conversions tell it."""
    return re.sub(r"^(b?)(float|complex)(\d+)$", lambda found: f"{found[1]}{found[2][0]}{found[3]}", dtype)


def _overlap(name: str, other: str) -> bool:
    """Whether one of two expressions is a part of the other, as self.clip of (1.0 + self.clip)."""
    return _renamed(other, name, "") != other or _renamed(name, other, "") != name


def _made_for(facts: Facts) -> dict[str, tuple[int, int]]:
    """By compile id: Stack id of the line whose call a version was made for, and the thread."""
    known = facts.run.torch_compile
    first = {one.first.compile: (stack, one.first.tid) for stack, one in known.calls.items()}
    return first | {one.event.compile: (one.event.stack, one.event.tid) for one in known.recompiles}


def _for_another_call(facts: Facts, record: RecompileRecord, made: dict[str, tuple[int, int]]) -> Iterator[str]:
    """The line, and the thread, whose call the version before was made for."""
    stack, tid = made.get(record.event.against, (0, 0))
    if (place := facts.place(stack)).line:
        thread = "another thread's call at " if tid != record.event.tid else "the call at "
        yield f"the version before was made for {thread}{cited(place)}"


def _advice(facts: Facts, first: RecompileRecord, guard: Guard, place: Place, advice: str) -> str:
    """What to do: an option of the library that what is compiled is of, or the tensor that a call reads a number from
    in place of the number; else ``advice``."""
    if is_a_librarys(facts, first.event.code):
        there = replace(place, library=(facts.place(first.event.code),), loop=place.loop or 1)
        said = library_options.advise("recompile", there, guard.subject, advice)
        if said.is_option:
            return said.advice
    return texts.of_the_tensor(guard, facts.place(first.event.stack).acting.code, advice)


def _subject(record: RecompileRecord, guard: Guard) -> _Subject:
    return record.event.code, guard.kind, named(guard)


def _with_it(recompiles: list[Blamed], blamed: set[_Subject]) -> Iterator[Guard]:
    """Guards on something else that failed in one of these as well, and that no finding blames: each is a cause by
    itself, for which the function would be compiled again if this one were mended alone.

    One that every object of a class holds under its own path is told once. Of a reset none is: what was forgotten had
    been compiled with all of these, and is a version more once, whatever they are.
    """
    _, guard, _ = recompiles[0]
    if guard.kind == "reset":
        return iter(())
    seen = {(guard.kind, _last_of(guard), guard.old, guard.new)}
    apart = (one for record, one, _ in recompiles if record.another or one.kind != "value")
    known = {guard.subject, *(one.subject for one in apart)}
    found = list[Guard]()
    for record in (record for record, _, _ in recompiles if not record.another):
        for one in record.event.guards:
            of_size = one.kind == guard.kind == "shape"
            if one.kind not in _OF_ONE_THING or one.handed or of_size or not one.new or one.subject in known:
                continue
            same = (one.kind, _last_of(one), one.old, one.new)
            told = any(part[:2] == (record.event.code, one.kind) and _overlap(named(one), part[2]) for part in blamed)
            if told or same in seen or container(one) in known:
                continue
            seen.add(same)
            known |= {one.subject, container(one)} - {""}
            found.append(one)
    return iter(found[:NAMED])


def _too(guard: Guard, advised: str, others: dict[Guard, Case]) -> Iterator[str]:
    """What to do for guards that failed with the one that ``advised`` is said of: briefly, where it is the same."""
    apart = {one: texts.advice(one, its) for one, its in others.items()}
    same = [one for one, text in apart.items() if _renamed(text, one.subject, guard.subject) == advised]
    if same:
        yield f"Do the same for {enumerated([one.subject for one in same], len(same))}."
    yield from (f"As for {one.subject}: {text}" for one, text in apart.items() if one not in same)


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w])", lambda _: new, text)


def _last_of(guard: Guard) -> str:
    return named(guard).rpartition(".")[2]


def _sizes_with_it(recompiles: list[Blamed]) -> Iterator[tuple[Guard, Guard]]:
    """The guard that is blamed, and those on other inputs whose size changed with it: they have to be dynamic, too."""
    for record, guard, _ in recompiles if recompiles[0][1].kind == "shape" else ():
        yield from ((guard, one) for one in record.event.guards if one.kind == "shape" and one.subject != guard.subject)


def _went(guard: Guard) -> str:
    return f"{guard.old} -> {guard.new}" if guard.new else texts.code(guard)


def evidence(recompiles: list[Blamed]) -> Iterator[str]:
    """Each of them: when, how long, what changed, and the other guards that failed."""
    found = []
    for record, guard, _ in sorted(recompiles, key=lambda one: one[0].event.t):
        when = f"step {record.step}" if record.step > 0 else f"compile {record.event.compile}"
        subject = f"{guard.subject} " if guard.new else ""
        others = [f"{one.subject} {one.old} -> {one.new}".strip() for one in record.event.guards[1:4] if one.subject]
        too = f"; failed too: {', '.join(others)}" if others else ""
        found.append(f"{when}: {duration(record.dur / 1e9)}, {subject}{_went(guard)}{too}")
    return listed(found)


def _limit_alone(facts: Facts, limit: DynamoLimit, step: int) -> Finding:
    """A limit was hit, but its recompilations are not in the recording, which began too late."""
    function = facts.text(limit.func) or "the function called here"
    return facts.finding(
        "recompile",
        facts.place(limit.stack),
        operation=LIMIT,
        count=1,
        counted=Known((Moment(limit.t),)),
        cost_s=0.0,
        cause=f"{function} was compiled again and again; {'; '.join(limit_clause(facts, (limit, step)))}.",
        advice=texts.advice(limit.guard or Guard("guard"), Case((), ""), limit.limit),
        discriminator="torch.compile limit",
    )
