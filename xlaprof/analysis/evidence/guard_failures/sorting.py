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

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.evidence.breaks import Broken, Line, broken
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_failures.case import filled, named, sizes_of_dim
from xlaprof.analysis.evidence.guard_failures.guards import by_caller, maker
from xlaprof.analysis.fold.torch_compile import RecompileRecord
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.principles import DEAR, HABIT, LARGE, MOST
from xlaprof.analysis.shapes import are_doubled
from xlaprof.events import DynamoLimit, Guard
from xlaprof.text.strings import package_path

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


GRADIENTS = "grad_mode"
#: backends by AOTAutograd, which compile the backward graph when it is first called for
_LATER = frozenset({"inductor", "aot_eager", "aot_eager_decomp_partition", "cudagraphs", "openxla"})


Blamed = tuple[RecompileRecord, Guard, Place]
_Key = tuple[str, int, str, str]  # file, line, kind of guard, its subject


class Sorted(NamedTuple):
    """Recompilations by what they belong to."""

    found: list[list[Blamed]]  # a finding each
    behind: dict[Line, list[Blamed]]  # the finding on a graph break, which handed over another value than before
    necessary: list[RecompileRecord]  # none
    chosen: list[list[Blamed]]  # none: sizes, each of which is to have a graph of its own


def sort_out(facts: Facts) -> Sorted:
    """Recompilations by what they belong to."""
    limited = {record.event.code for record in facts.run.torch_compile.recompiles if record.limit is not None}
    of_values = _told_apart_by_values(facts)
    lines, necessary = broken(facts), list[Blamed]()
    behind: dict[Line, list[Blamed]] = {}
    groups: dict[_Key, list[Blamed]] = {}
    pieces: dict[tuple[object, ...], _Key] = {}
    first_of: dict[tuple[object, ...], _Key] = {}  # what is one cause everywhere -> its first group
    known = _made_at(facts)
    earlier: dict[int, list[tuple[Blamed, list[Blamed]]]] = {}  # by function, with those that it belongs to
    by_next = _told_by_next(facts)
    for recorded in facts.run.torch_compile.recompiles:
        record = by_next.get(id(recorded), recorded)
        guard, place = to_blame(record), facts.place(record.event.resumed)
        first, belongs = _followed(record, earlier.setdefault(record.event.code, [])) or (None, necessary)
        apart = _apart_for(facts, record, lines)
        if first is not None:
            _, guard, place = first
        elif (
            _is_of_another(record, for_object=apart is None and record.event.code not in limited)
            and not is_gradless(facts, record)
            and id(recorded) not in of_values
        ):
            belongs = necessary
        elif guard.handed and place.at in lines:
            belongs = behind.setdefault(place.at, [])
        elif apart is not None:
            belongs = behind.setdefault(apart, [])
        else:
            guard = to_blame(record)
            same = record.event.code, guard.kind, named(guard)
            made = known.get(same, NOWHERE)
            if is_a_librarys(facts, record.event.code):  # which several lines of the program may run
                made = facts.place(guard.stack)
            place = _place(facts, record, guard, made)
            kind = f"{'shape' if guard.kind == 'stride' else guard.kind} {guard.dim}"  # another dimension, other advice
            # One size that changes recompiles all pieces of a function, and each piece has a name of its own for it.
            went = sizes_of_dim(guard) if guard.new else (named(guard),)
            change = (*place.at, kind, *went, record.step)
            key = pieces.setdefault(change, (*place.at, kind, named(guard)))
            if record.another and guard.kind != "stride":  # each object of the class has a value of its own
                key = first_of.setdefault((record.event.code, guard.kind), key)
            elif guard.kind in _OF_SIZE:  # the same size may be new to the lines that train and those that evaluate
                key = first_of.setdefault((*same, *sizes_of_dim(guard)), key)
            belongs = groups.setdefault(key, [])
        belongs.append((record, guard, place))
        earlier[record.event.code].append((belongs[-1], belongs))
    found, chosen = list[list[Blamed]](), list[list[Blamed]]()
    joined = list(groups.values())
    for leads in (_fills, _are_of_one_thing, _vary_together, _changed_together):
        joined = _join(joined, leads)
    for recompiles in _limited_by_most(joined):
        if _makes_state(facts, recompiles) or _are_modes(facts, recompiles):
            necessary += recompiles
        else:
            (chosen if _are_chosen_sizes(recompiles) else found).append(recompiles)
    return Sorted(found, behind, [record for record, _, _ in necessary], chosen)


def _told_by_next(facts: Facts) -> dict[int, RecompileRecord]:
    """Versions that are compared with a distant one, with all the changes for which this line's calls had a version
    already: in what they differ from that one is not told, and what the next version differs in from them is taken for
    it, as of a cache that grows by each token. By ``id``, with the next one's guards."""
    made, known = set[tuple[object, ...]](), facts.run.torch_compile.recompiles
    after = {(one.event.code, one.event.against): one for one in reversed(known)}
    found: dict[int, RecompileRecord] = {}
    for record in known:
        event = record.event
        change = event.code, event.stack, event.against, *((one.kind, one.subject, one.new) for one in event.guards)
        following = after.get((event.code, event.compile))
        again = change in made and to_blame(record).kind != "reset" and not event.resumed
        if again and following is not None and following.event.stack == event.stack:
            found[id(record)] = replace(record, event=replace(event, guards=following.event.guards))
        made.add(change)
    return found


def _made_at(facts: Facts) -> dict[tuple[int, str, str], Place]:
    """By function and guard: the line that made it. Not every version tells it."""
    known: dict[tuple[int, str, str], Place] = {}
    for record in facts.run.torch_compile.recompiles:
        for guard in record.event.guards:
            if (made := facts.place(guard.stack)).line:
                known.setdefault((record.event.code, guard.kind, named(guard)), made)
    return known


def _join(groups: list[list[Blamed]], leads: Callable[[list[Blamed], list[Blamed]], bool]) -> list[list[Blamed]]:
    """The groups, each behind the first other that ``leads`` it, if one does: they are one cause."""
    found = list(groups)
    for group in groups:
        there = any(one is group for one in found)
        leading = next((one for one in found if there and one is not group and leads(one, group)), None)
        if leading is not None:
            found = [one for one in found if one is not group and one is not leading] + [[*leading, *group]]
    return found


def _are_of_one_thing(leading: list[Blamed], group: list[Blamed]) -> bool:
    """Whether the guards of a group are on the same thing as others, and tell less of it: bounds, which are guards of
    no other kind, on a number that changes at their line; the length, or the keys, of a list or dict whose entries
    change, or the length of one whose keys do."""
    (record, guard, place), (other, less, where) = leading[0], group[0]
    if less.kind == "guard":
        return guard.kind != "guard" and place == where and guard.subject == named(less)
    held = filled(less)
    same = guard.subject.startswith(f"{held}[") or (guard.kind != "length" and filled(guard) == held)
    return bool(held) and same and record.event.code == other.event.code


def _vary_together(leading: list[Blamed], group: list[Blamed]) -> bool:
    """Whether a size changed in most versions that another size led to, too: of a batch of graphs, nodes and edges."""
    record, guard, _ = group[0]
    if {guard.kind, leading[0][1].kind} != {"shape"} or record.event.code != leading[0][0].event.code:
        return False
    same = [
        any((one.kind, one.subject, one.dim) == (guard.kind, guard.subject, guard.dim) for one in other.event.guards)
        for other, _, _ in leading
    ]
    return len(leading) > len(group) and sum(same) >= MOST * len(same)


def _changed_together(leading: list[Blamed], group: list[Blamed]) -> bool:
    """Whether what leads to most versions had changed in each one of these as well, and alike: a schedule sets both."""
    record, guard, _ = leading[0]
    of_values = record.event.code == group[0][0].event.code and guard.kind == "value"

    def is_alike(other: RecompileRecord, own: Guard) -> bool:
        went = {(one.kind, one.subject, one.old, one.new) for one in other.event.guards}
        return (guard.kind, guard.subject, own.old, own.new) in went

    return of_values and len(leading) > len(group) and all(is_alike(other, own) for other, own, _ in group)


def _fills(entries: list[Blamed], sizes: list[Blamed]) -> bool:
    """Whether a function fills something as it runs, an entry for each size: it makes the sizes constants, and has the
    versions of before the latest entry compiled again."""
    if sizes[0][1].kind != "shape" or not filled(entries[0][1]) or not specialized(sizes):
        return False
    versions = {record.event.compile for record, _, _ in sizes}
    of_one = entries[0][0].event.code == sizes[0][0].event.code
    return of_one and any(record.event.against in versions for record, _, _ in entries)


def _limited_by_most(groups: list[list[Blamed]]) -> list[list[Blamed]]:
    """A limit is hit for the cause of most versions of the function, not for what happened to change last."""

    def versions(group: list[Blamed], code: int) -> int:  # a line may call several functions, which are one group
        return sum(record.event.code == code for record, _, _ in group)

    for group in groups:
        for one in [one for one in group if one[0].limit is not None]:
            most = max(groups, key=partial(versions, code=one[0].event.code))
            if versions(most, one[0].event.code) > versions(group, one[0].event.code):
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
    for line in through:
        plain = {part[0] for tally in lines[line].tallies for part in tally.plain}
        # nothing of a function is compiled whose call reaches this one, or the break in this one cuts it, too
        if (plain and code not in plain) or is_cut_out(facts, record, lines[line]):
            return line
    return None


def is_cut_out(facts: Facts, record: RecompileRecord, here: Broken) -> bool:
    """Whether a break in a function cuts what calls it, too: else that graph would hold the function, and it would need
    none of its own."""
    code, called = record.event.code, facts.run.torch_compile.calls.get(record.event.stack)
    cut = {part[0] for tally in here.tallies for part in tally.cut}
    return called is not None and called.first.code != code and {called.first.code, code} <= cut


def _package(facts: Facts, code: int) -> str:
    return package_path(facts.place(code).file).partition("/")[0]


def _followed(
    record: RecompileRecord, earlier: list[tuple[Blamed, list[Blamed]]]
) -> tuple[Blamed, list[Blamed]] | None:
    """The recompilation of an earlier part of the function, in the same call, from which this one follows: of what
    comes behind a break, for the same change, or for a size that the function made of the one that changed."""
    guard = to_blame(record)
    for first, belongs in reversed(earlier if record.event.resumed else ()):
        if first[0].event.compile.rpartition("/")[0] == record.event.compile.rpartition("/")[0]:
            return None  # a call before
        one = to_blame(first[0])
        sizes = [each.kind in _OF_SIZE for each in (one, guard)]
        changes = [(each.kind, *sizes_of_dim(each)) for each in (one, guard)]
        same = changes[0] == changes[1] and (guard.handed or guard.subject == one.subject)
        # a variable was there before this break: what it holds was made from the value that changed before
        made = guard.handed and sizes[0] == sizes[1] and (guard.subject.isidentifier() if one.handed else sizes[0])
        if same or made:
            return first, belongs
    return None


def _is_of_another(record: RecompileRecord, *, for_object: bool) -> bool:
    """Whether it is the first version for another object, or another use, and would have been made in any case.

    Another use is a line that calls in another mode, with other objects, or with a size that torch.compile compiles
    apart, for the first time. ``for_object``: whether another object is enough. It is not where a graph break alone
    has the function compiled by itself, nor where the objects of a class use up the limit of its versions.
    """
    guards = record.event.guards
    if to_blame(record).kind == "reset" or (guards and all(map(maker, guards))):
        return False
    if to_blame(record).text.startswith(_IN_BETWEEN):
        return True
    if guards and all(one.kind == "stride" for one in guards):  # whatever object it is of, a layout can be one
        return False
    used = any((one.kind in _OF_THE_CALL and one.subject not in _SETTINGS) or _is_apart(one) for one in guards)
    return (record.another and for_object) or (record.apart and used)


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


def is_gradless(facts: Facts, record: RecompileRecord) -> bool:
    """Whether it was made for another ``grad_mode`` though no version of the function ever got a backward graph.

    Where that would be seen: of a backend that makes one when it is first called for, and not from its cache, nor
    beforehand, as of sizes that are dynamic.
    """
    guard = to_blame(record)
    function = facts.run.torch_compile.functions.get((record.event.code, record.event.func))
    if guard.kind != "mode" or guard.subject != GRADIENTS or function is None:
        return False
    seen = not function.cached and not function.variable and facts.text(function.backend) in _LATER
    return seen and not function.backwards and not facts.run.torch_compile.compiled_autograd


def _is_apart(guard: Guard) -> bool:
    return guard.kind == "shape" and not _APART.isdisjoint(sizes_of_dim(guard))


def _makes_state(facts: Facts, recompiles: list[Blamed]) -> bool:
    """Whether this is an optimizer's second step: it had no state in the first, which is warm-up."""
    record, guard, _ = recompiles[0]
    file = facts.place(record.event.code).file.replace("\\", "/")
    return len(recompiles) == 1 and "/torch/optim/" in file and "self.state" in guard.text


def _are_chosen_sizes(recompiles: list[Blamed]) -> bool:
    """Whether dynamic=False was asked for, so that each size has a graph, and the sizes are few, or each is twice
    the one before.

    Without it two of few graphs would be one, which takes longer to compile and to run. A smaller batch at the end is a
    size that the program can do without, and what changes with a size is a cause by itself.
    """
    kinds = {one.kind for record, guard, _ in recompiles for one in (guard, *record.event.guards)}
    if limit_hit(recompiles) or kinds != {"shape"} or any(one.event.dynamic != "False" for one, _, _ in recompiles):
        return False
    (old, new), *others = changes = {sizes_of_dim(guard) for _, guard, _ in recompiles}
    taken = {size for change in changes for size in change if size}
    last_batch = recompiles[0][1].dim == 0 and old.isdigit() and new.isdigit() and int(new) < int(old)
    return (len(taken) <= HABIT or are_doubled(taken)) and not (last_batch and not others)


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


def cost_s(recompiles: list[Blamed]) -> float:
    """Seconds that went into these versions."""
    return sum(record.dur for record, _, _ in recompiles) / 1e9


def to_blame(record: RecompileRecord) -> Guard:
    guards = record.event.guards
    return guards[0] if guards else Guard("guard")


def _place(facts: Facts, record: RecompileRecord, guard: Guard, made: Place) -> Place:
    call = facts.place(record.event.stack)
    if maker(guard):
        return facts.place(record.event.code)
    if (by_caller(guard) and call.line) or not made.line:
        return call if call.line else facts.place(record.event.code)
    return made


def specialized(recompiles: list[Blamed]) -> bool:
    """Whether a version was made for a size, or number, that had changed before, and holds for that one only.

    After its first change PyTorch makes it a variable, unless it was told otherwise, or the code needs the number.
    """
    if any(guard.asked for _, guard, _ in recompiles):
        return True
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
