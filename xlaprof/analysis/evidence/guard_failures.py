"""Recompilations of ``torch.compile``: in every version of a function a guard failed, so it was compiled again.

One finding for all recompilations that one kind of change at one line caused. These recompilations are no findings:
the first version for another object of a class (a model that is compiled block by block), unless the class itself is
made anew for it, and nothing else differs; the first for another use of
the function, called from a line of its own (evaluation, the other player of a GAN, decoding after the prefill); and
versions for what a graph break hands over, a value read there or a size selected, which belong to its finding.

A finding on the recompile limit comes first, whatever it was measured to cost: from then on the function silently runs
eagerly where no version fits. Cost: the compile time of the versions, XLA's part included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis import uses
from xlaprof.analysis.evidence import guards as texts
from xlaprof.analysis.evidence import library_options
from xlaprof.analysis.evidence.breaks import Broken, Line, broken, function_name
from xlaprof.analysis.evidence.counted import Known, values
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.guards import Case, sizes_of_dim
from xlaprof.analysis.fold.torch_compile import RecompileRecord
from xlaprof.analysis.model import Finding, FromTo, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.principles import DEAR, HABIT, LARGE
from xlaprof.analysis.shapes import are_doubled
from xlaprof.events import DynamoLimit, Guard
from xlaprof.text.quantities import duration, times
from xlaprof.text.strings import enumerated, package_path

_CONFIG = "torch._dynamo.config."
#: operation of a finding on a limit
LIMIT = f"{_CONFIG}recompile_limit"
_OF_SIZE = frozenset({"shape", "size bound", "stride"})
#: kinds of guards on what the line that calls hands over, or is in
_OF_THE_CALL = frozenset({"mode", "training", "dispatch", "requires_grad", "object", "type"})
#: of what another thread compiled meanwhile PyTorch finds no guard that fails any more
_IN_BETWEEN = "Unexpected recompilation: runtime guards failed even though they passed"
#: of PyTorch, which no other use of a function needs
_SETTINGS = frozenset({"deterministic_algorithms", "num_threads", "default_dtype", "allow_tf32"})
_APART = frozenset({"0", "1"})  # sizes that torch.compile compiles apart, whatever is dynamic


Blamed = tuple[RecompileRecord, Guard, Place]
_Key = tuple[str, int, str, str]  # file, line, kind of guard, its subject


class Sorted(NamedTuple):
    """Recompilations by what they belong to."""

    found: list[list[Blamed]]  # a finding each
    behind: dict[Line, list[Blamed]]  # the finding on a graph break, which handed over another value than before
    necessary: list[RecompileRecord]  # none


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line, kind of change and function."""
    for recompiles in sort_out(facts).found:
        yield _finding(facts, recompiles)
    for limit, step in facts.run.torch_compile.limits:
        yield _limit_alone(facts, limit, step)


def sort_out(facts: Facts) -> Sorted:
    """Recompilations by what they belong to."""
    limited = {record.event.code for record in facts.run.torch_compile.recompiles if record.limit is not None}
    of_values = _told_apart_by_values(facts)
    lines, necessary = broken(facts), list[Blamed]()
    behind: dict[Line, list[Blamed]] = {}
    groups: dict[_Key, list[Blamed]] = {}
    pieces: dict[tuple[object, ...], _Key] = {}
    first_of: dict[tuple[object, ...], _Key] = {}  # what is one cause everywhere -> its first group
    known: dict[tuple[int, str, str], Place] = {}  # guard -> line that made it; not every version has it
    again: dict[str, RecompileRecord] = {}  # by compile id: those that were not necessary
    earlier: dict[int, list[tuple[Blamed, list[Blamed]]]] = {}  # by function, with those that it belongs to
    for record in facts.run.torch_compile.recompiles:
        guard, place = _to_blame(record), facts.place(record.event.resumed)
        first, belongs = _followed(record, earlier.setdefault(record.event.code, [])) or (None, necessary)
        if first is not None:
            _, guard, place = first
        elif (
            _is_of_another(record)
            and id(record) not in of_values
            and not (record.another and record.event.code in limited)
        ):
            belongs = necessary
        elif guard.handed and place.at in lines:
            belongs = behind.setdefault(place.at, [])
        elif (line := _apart_for(facts, record, lines)) is not None:
            belongs = behind.setdefault(line, [])
        else:
            again[record.event.compile] = cause = _caused_by(record, again)
            guard = _to_blame(cause)
            same, made = (record.event.code, guard.kind, texts.named(guard)), facts.place(guard.stack)
            made = known.setdefault(same, made) if made.line else known.get(same, NOWHERE)
            place = _place(facts, cause, guard, made)
            kind = f"{'shape' if guard.kind == 'stride' else guard.kind} {guard.dim}"  # another dimension, other advice
            # One size that changes recompiles all pieces of a function, and each piece has a name of its own for it.
            went = sizes_of_dim(guard) if guard.new else (texts.named(guard),)
            change = (*place.at, kind, *went, record.step)
            key = pieces.setdefault(change, (*place.at, kind, texts.named(guard)))
            if record.another and guard.kind != "stride":  # each object of the class has a value of its own
                key = first_of.setdefault((record.event.code, guard.kind), key)
            elif guard.kind in _OF_SIZE:  # the same size may be new to the lines that train and those that evaluate
                key = first_of.setdefault((*same, *sizes_of_dim(guard)), key)
            belongs = groups.setdefault(key, [])
        belongs.append((record, guard, place))
        earlier[record.event.code].append((belongs[-1], belongs))
    found = []
    joined = list(groups.values())
    for leads in (_has_bounds, _fills, _has_entries):
        joined = _join(joined, leads)
    for recompiles in _limited_by_most(joined):
        if _makes_state(facts, recompiles) or _are_two_sizes(recompiles) or _are_modes(facts, recompiles):
            necessary += recompiles
        else:
            found.append(recompiles)
    return Sorted(found, behind, [record for record, _, _ in necessary])


def _join(groups: list[list[Blamed]], leads: Callable[[list[Blamed], list[Blamed]], bool]) -> list[list[Blamed]]:
    """The groups, each behind the first other that ``leads`` it, if one does: they are one cause."""
    found = list(groups)
    for group in groups:
        there = any(one is group for one in found)
        leading = next((one for one in found if there and one is not group and leads(one, group)), None)
        if leading is not None:
            found = [one for one in found if one is not group and one is not leading] + [[*leading, *group]]
    return found


def _has_bounds(number: list[Blamed], bounds: list[Blamed]) -> bool:
    """Whether bounds of a number, which are guards of no other kind, go with the changes of that number, at their
    line."""
    (_, guard, place), (_, bound, where) = number[0], bounds[0]
    return guard.kind != "guard" == bound.kind and place == where and guard.subject == texts.named(bound)


def _fills(filled: list[Blamed], sizes: list[Blamed]) -> bool:
    """Whether a function fills something as it runs, an entry for each size: it makes the sizes constants, and has the
    versions of before the latest entry compiled again."""
    if sizes[0][1].kind != "shape" or not texts.filled(filled[0][1]) or not _specialized(sizes):
        return False
    versions = {record.event.compile for record, _, _ in sizes}
    return _are_of_one(filled, sizes) and any(record.event.against in versions for record, _, _ in filled)


def _has_entries(entries: list[Blamed], container: list[Blamed]) -> bool:
    """Whether the length, or the keys, of what a function fills go with what it puts there: its entries lead."""
    kept = texts.filled(container[0][1])
    return bool(kept) and entries[0][1].subject.startswith(f"{kept}[") and _are_of_one(entries, container)


def _are_of_one(one: list[Blamed], other: list[Blamed]) -> bool:
    return one[0][0].event.code == other[0][0].event.code


def _limited_by_most(groups: list[list[Blamed]]) -> list[list[Blamed]]:
    """A limit is hit for the cause of most versions of the function, not for what happened to change last."""
    for group in groups:
        for one in [one for one in group if one[0].limit is not None]:
            most = max((g for g in groups if g and g[0][0].event.code == one[0].event.code), key=len)
            if len(most) > len(group):
                group.remove(one)
                most.append(one)
    return [group for group in groups if group]


def is_a_librarys(facts: Facts, code: int) -> bool:
    """Whether a function is defined in an installed package."""
    return "/site-packages/" in facts.place(code).file.replace("\\", "/")


def _apart_for(facts: Facts, record: RecompileRecord, lines: dict[Line, Broken]) -> Line | None:
    """The line of the break for which a function has a graph of its own. One that the line of the program calls itself
    has one in any case; whole, that holds what it calls: of the library that breaks, each function with its arguments.
    """
    code, call, calls = record.event.code, facts.place(record.event.stack).at, facts.run.torch_compile.calls
    if (called := calls.get(record.event.stack)) is not None and called.first.code == code:
        return None
    through = [line for line, one in lines.items() if any(facts.place(caller).at == call for caller in one.callers)]
    if is_a_librarys(facts, code):
        mine = _package(facts, code)
        for line, one in lines.items():
            functions = {place for place, _ in one.functions}
            others = functions - {code}
            if others and (code in functions or (line in through and mine in (_package(facts, one) for one in others))):
                return line
        return None
    for line in through:  # nothing of a function is compiled whose call reaches this one
        plain = {part[0] for tally in lines[line].tallies for part in tally.plain}
        if plain and code not in plain:
            return line
    return None


def _package(facts: Facts, code: int) -> str:
    return package_path(facts.place(code).file).partition("/")[0]


def _followed(
    record: RecompileRecord, earlier: list[tuple[Blamed, list[Blamed]]]
) -> tuple[Blamed, list[Blamed]] | None:
    """The recompilation of an earlier part of the function, in the same call, from which this one follows: of what
    comes behind a break, for the same change, or for a size that the function made of the one that changed."""
    guard = _to_blame(record)
    for first, belongs in reversed(earlier if record.event.resumed else ()):
        if first[0].event.compile.rpartition("/")[0] == record.event.compile.rpartition("/")[0]:
            return None  # a call before
        one = _to_blame(first[0])
        sizes = [each.kind in _OF_SIZE for each in (one, guard)]
        changes = [(each.kind, *sizes_of_dim(each)) for each in (one, guard)]
        same = changes[0] == changes[1] and (guard.handed or guard.subject == one.subject)
        # a variable was there before this break: what it holds was made from the value that changed before
        made = guard.handed and sizes[0] == sizes[1] and (guard.subject.isidentifier() if one.handed else sizes[0])
        if same or made:
            return first, belongs
    return None


def _is_of_another(record: RecompileRecord) -> bool:
    """Whether it is the first version for another object, or another use, and would have been made in any case.

    Another use is a line that calls in another mode, with other objects, or with a size that torch.compile compiles
    apart, for the first time.
    """
    guards = record.event.guards
    if _to_blame(record).kind == "reset" or (guards and all(map(texts.maker, guards))):
        return False
    if _to_blame(record).text.startswith(_IN_BETWEEN):
        return True
    if guards and all(one.kind == "stride" for one in guards):  # whatever object it is of, a layout can be one
        return False
    used = any((one.kind in _OF_THE_CALL and one.subject not in _SETTINGS) or _is_apart(one) for one in guards)
    return record.another or (record.apart and used)


def _told_apart_by_values(facts: Facts) -> frozenset[int]:
    """Versions for other objects of a class of which nothing but Python values differ, where they take much of the run:
    one would serve all, if these were tensors."""
    found: dict[int, list[RecompileRecord]] = {}
    for record in facts.run.torch_compile.recompiles:
        if record.another and record.event.guards and all(one.kind == "value" for one in record.event.guards):
            found.setdefault(record.event.code, []).append(record)
    dear = (some for some in found.values() if len(some) >= HABIT)
    return frozenset(
        id(record) for some in dear if sum(one.dur for one in some) >= DEAR * facts.wall_s * 1e9 for record in some
    )


def _is_apart(guard: Guard) -> bool:
    return guard.kind == "shape" and not _APART.isdisjoint(sizes_of_dim(guard))


def _caused_by(record: RecompileRecord, again: dict[str, RecompileRecord]) -> RecompileRecord:
    """What changed before this line called again: its last version was in the same mode, and the nearest one, which is
    of another line, was made for that change."""
    other = again.get(record.event.against)
    in_a_mode = _to_blame(record).kind in _OF_THE_CALL
    if other is None or not in_a_mode or _to_blame(other).kind == "reset" or other.event.stack == record.event.stack:
        return record
    return other


def _makes_state(facts: Facts, recompiles: list[Blamed]) -> bool:
    """Whether this is an optimizer's second step: it had no state in the first, which is warm-up."""
    record, guard, _ = recompiles[0]
    file = facts.place(record.event.code).file.replace("\\", "/")
    return len(recompiles) == 1 and "/torch/optim/" in file and "self.state" in guard.text


def _are_two_sizes(recompiles: list[Blamed]) -> bool:
    """Whether dynamic=False was asked for, and there are two sizes, without it there would be as many versions; or
    buckets, of which each is twice the one before.

    A smaller batch at the end is a size that the program can do without.
    """
    if any(record.event.dynamic != "False" or guard.kind != "shape" for record, guard, _ in recompiles):
        return False
    (old, new), *others = changes = {sizes_of_dim(guard) for _, guard, _ in recompiles}
    if are_doubled({size for change in changes for size in change}):
        return True
    last_batch = recompiles[0][1].dim == 0 and old.isdigit() and new.isdigit() and int(new) < int(old)
    return not others and not last_batch


def _are_modes(facts: Facts, recompiles: list[Blamed]) -> bool:
    """Whether a Python value takes few values that come back, as in another mode of PyTorch: they are meant, and each
    has its graph. What takes a large share of the run is told."""
    changes = [(guard.subject, guard.old, guard.new) for _, guard, _ in recompiles]
    few = len({value for _, *change in changes for value in change}) <= HABIT
    meant = few and len(set(changes)) < len(changes) and limit_hit(recompiles) is None
    return meant and all(one.kind == "value" for _, one, _ in recompiles) and cost_s(recompiles) < LARGE * facts.wall_s


def hit_a_limit(finding: Finding) -> bool:
    """Whether a limit of ``torch._dynamo.config`` was hit, which switches compilation off."""
    return finding.operation.startswith(_CONFIG)


def limit_hit(recompiles: list[Blamed]) -> tuple[DynamoLimit, int] | None:
    """The first limit that these hit, and the step."""
    return next(((record.limit, record.step) for record, _, _ in recompiles if record.limit is not None), None)


def limit_clause(hit: tuple[DynamoLimit, int] | None) -> Iterator[str]:
    """The clause on hitting a limit, without a full stop."""
    if hit is not None:
        limit, step = hit
        since = f"since step {step}" if step > 0 else "since then"
        value = f" = {limit.value}" if limit.value else ""
        yield (
            f"with that torch._dynamo.config.{limit.limit}{value} was hit, and {since} whatever fits no version runs "
            "eagerly, silently"
        )


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


def cost_s(recompiles: list[Blamed]) -> float:
    """Seconds that went into these versions."""
    return sum(record.dur for record, _, _ in recompiles) / 1e9


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


def _to_blame(record: RecompileRecord) -> Guard:
    guards = record.event.guards
    return guards[0] if guards else Guard("guard")


def _place(facts: Facts, record: RecompileRecord, guard: Guard, made: Place) -> Place:
    call = facts.place(record.event.stack)
    if texts.maker(guard):
        return facts.place(record.event.code)
    if (texts.by_caller(guard) and call.line) or not made.line:
        return call if call.line else facts.place(record.event.code)
    return made


def _finding(facts: Facts, recompiles: list[Blamed]) -> Finding:
    first, guard, place = recompiles[0]
    made = _made_for(facts) if guard.kind == "aliasing" else {}  # for which call: it passed one tensor twice
    guards = [one for _, one, _ in recompiles]
    guard = texts.told(guard, (one for record, _, _ in recompiles for one in record.event.guards))
    cost = cost_s(recompiles)
    limit = limit_hit(recompiles)
    function = function_name(facts, first.event.code, first.event.func) or "the function"
    tally = facts.run.torch_compile.functions.get((first.event.code, first.event.func))
    backend = facts.text(tally.backend) if tally is not None else ""
    compiled = [(record, one) for record, one, _ in recompiles if record.limit is None]
    moments = [Moment(record.event.t, record.dur, detail=_went(one)) for record, one in compiled]
    case = Case(
        guards,
        backend,
        first.event.dynamic,
        _specialized(recompiles),
        uses.takes_number(place.acting.code, guard.subject),
        _together(recompiles),
        sum(record.another for record, _ in compiled),
        uses.needed_for(place.acting.code, texts.named(guard)),
        uses.is_handed_over(facts.place(first.event.stack).acting.code, guard.subject),
        next((one.subject for one in guards if one.kind == "shape" != guard.kind), ""),
    )
    changes = {(one.subject, one.old, one.new) for _, one in compiled if one.kind == guard.kind}
    again = f"{_compiled_again(facts, [record for record, _ in compiled])}, {duration(cost)} in all"
    clauses = [f"{texts.cause(guard, len(changes), case)}: {again}", *limit_clause(limit)]
    eager = sum(eager_ns(facts, (first.event.code, first.event.func)).values()) / 1e9 if limit is not None else 0.0
    if eager:
        clauses[-1] += f" ({duration(eager)} in {function})"
    return facts.finding(
        "recompile",
        place,
        operation="" if limit is None else LIMIT,
        count=len(compiled),
        counted=Known(tuple(sorted(moments, key=lambda moment: moment.t))),
        cost_s=cost + eager,
        gain_s=cost,  # of the time in eager mode a compiled version takes a part that is not known
        cause=f"{'; '.join(clauses)}.",
        advice=_advice(facts, first, guard, place, texts.advice(guard, case, limit[0].limit if limit else "")),
        change=FromTo(texts.what(guard), guard.old, guard.new),
        evidence=[*evidence(recompiles), *([f"guard: {texts.code(guard)}"] if guard.text else [])],
        discriminator=f"torch.compile {guard.kind} {guard.subject}",
        # the line that made the guard, the line of the call and that of the definition
        also=[
            facts.place(stack)
            for record, one, _ in recompiles
            for stack in (one.stack, record.event.stack, record.event.code)
        ]
        + [facts.place(made.get(record.event.against, 0)) for record, _, _ in recompiles],
        values=values(sizes_of_dim(one) for one in guards if one.kind == guard.kind),
        remedy=texts.remedy(guard, case),
    )


def _made_for(facts: Facts) -> dict[str, int]:
    """By compile id: Stack id of the line whose call a version was made for."""
    known = facts.run.torch_compile
    first = {one.first.compile: stack for stack, one in known.calls.items()}
    return first | {one.event.compile: one.event.stack for one in known.recompiles}


def _advice(facts: Facts, first: RecompileRecord, guard: Guard, place: Place, advice: str) -> str:
    """What to do: an option of the library that what is compiled is of, or the tensor that a call reads a number from
    in place of the number; else ``advice``."""
    if is_a_librarys(facts, first.event.code):
        there = replace(place, library=(facts.place(first.event.code),), loop=place.loop or 1)
        said = library_options.advise("recompile", there, guard.subject, advice)
        if said.is_option:
            return said.advice
    return texts.of_the_tensor(guard, facts.place(first.event.stack).acting.code, advice)


def _together(recompiles: list[Blamed]) -> tuple[str, ...]:
    """Other inputs with the same new size in the first of them: their dimension has to be dynamic, too."""
    record, guard, _ = recompiles[0]
    alike = (sizes_of_dim(guard), "shape")
    others = (one.subject for one in record.event.guards if one is not guard and (sizes_of_dim(one), one.kind) == alike)
    return tuple(dict.fromkeys(others)) if guard.kind == "shape" else ()


def _specialized(recompiles: list[Blamed]) -> bool:
    """Whether a version was made for a size, or number, that had changed before, and holds for that one only.

    After its first change PyTorch makes it a variable, unless it was told otherwise, or the code needs the number.
    """
    made: set[tuple[str, str, int]] = set()
    for record, guard, _ in recompiles:
        if record.event.dynamic == "False" or not _APART.isdisjoint(sizes_of_dim(guard)):
            continue
        if guard not in record.event.guards:
            continue  # it follows from another's change
        if (record.event.against, guard.subject, guard.dim) in made:
            return True
        made.add((record.event.compile, guard.subject, guard.dim))
    return False


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
        cause=f"{function} was compiled again and again; {' '.join(limit_clause((limit, step)))}.",
        advice=texts.advice(limit.guard or Guard("guard"), Case((), ""), limit.limit),
        discriminator="torch.compile limit",
    )
