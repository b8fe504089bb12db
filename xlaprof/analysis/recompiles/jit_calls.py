"""Programs that JAX makes again: by what differs in the calls that need them, with the cause and the advice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import ne
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.evidence.counted import Known, values
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.model import Finding, FromTo, Moment
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import HABIT, MANY, NAMED, NEARLY_ALL
from xlaprof.analysis.shapes import are_chosen, dims, dtype, dtype_name
from xlaprof.analysis.sums import grouped
from xlaprof.events import ArgumentChange
from xlaprof.text.quantities import duration, plural, times

#: :attr:`Finding.operation` of these findings
JAX = "jax.jit"
_ENTRY = re.compile(r"\[\d+\]")  # of a list
_TRANSFORMATION = re.compile(r"\b(init|update)_fn\b")  # of optax, by the names that its functions have
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")


class Group(NamedTuple):
    """Programs of one cause."""

    lead: list[JitRecord]  # of one change, which tells the cause
    along: list[JitRecord]  # that the same makes necessary

    @property
    def records(self) -> list[JitRecord]:
        """All of them, the lead's first."""
        return self.lead + self.along


class Sorted(NamedTuple):
    """Programs made for calls that differ from earlier ones."""

    found: list[Group]  # by cause
    necessary: list[JitRecord]  # another use of the function, a size or mode that was chosen


def sort_out(facts: Facts) -> Sorted:
    """What the programs made again belong to. One cause is one: of a function, whichever line calls it; of all those
    that are given an object made anew, or another static value, or that are dropped; of all operations that follow one
    size, as of a mask. An operation outside of jitted functions has a program for every shape, as leaves of a model
    have several: only one whose size, operands or function vary again and again at a line is compiled again.
    """
    groups: dict[tuple[object, ...], list[JitRecord]] = {}
    necessary, found = [], []
    joins = {facts.place(event.stack).at for event in facts.run.jit.joins}
    for record in facts.run.jit.records:
        event, first = record.event, record.event.changes[0]
        name = re.sub(r"\d+\]", "]", first.name)  # elements of one list
        place = facts.place(event.stack)
        if record.apart and first.kind in _OF_THE_CALL:
            necessary.append(record)
        elif first.kind in ("anew", "field"):
            groups.setdefault((first.kind, name), []).append(record)
        elif first.kind == "evicted":
            groups.setdefault((first.kind,), []).append(record)
        elif event.code:
            groups.setdefault((event.code, event.func, first.kind, name, first.dim), []).append(record)
        elif place.at not in joins:
            groups.setdefault((place.at, event.func, first.kind, name, first.dim), []).append(record)
    beside: list[JitRecord] = []  # of operations that may have a program for every shape
    for group in groups.values():
        if _by_design(facts, group):
            necessary += group
        elif any(one.event.code for one in group) or _varies(facts, group):
            found.append(group)
        else:
            beside += group
    return Sorted(_joined(found, beside), necessary)


def _joined(groups: list[list[JitRecord]], beside: list[JitRecord]) -> list[Group]:
    """The groups by cause; ``beside``: what may go along with one, and is none by itself."""
    found: list[Group] = []
    for group in sorted(groups, key=_rank):
        mine = next((one for one in found if _is_part(one, group)), None)
        if mine is not None:
            mine.along.extend(group)
            continue
        own = [one for one in group if one.event.code] or group  # of the program's functions, where there are
        found.append(Group(own, [one for one in group if not one.event.code] if own is not group else []))
    for cause in found:
        sizes = _sizes_in_turn(cause.lead)
        if not cause.lead[0].event.code and sizes:
            cause.along.extend(one for one in beside if not sizes.isdisjoint(_sizes_in_turn([one])))
    return found


def _rank(group: list[JitRecord]) -> tuple[bool, int]:
    """What leads a cause: the dearest of the program's functions; of weak types, and of operations, the first."""
    first = group[0].event
    begins = not first.code or first.changes[0].kind == "weak type"  # what is computed of it follows
    return not first.code, first.t if begins else -_ns(group)


def _ns(records: Iterable[JitRecord]) -> int:
    return sum(one.event.dur for one in records)


def _is_dropped(group: list[JitRecord]) -> bool:
    return group[0].event.changes[0].kind == "evicted"


def _is_part(cause: Group, group: list[JitRecord]) -> bool:
    """Whether a group is made for a part of what the cause is: what is computed of a weakly typed array; another part
    of a structure, as of a list that begins empty and grows, or the same entries in another function; or, outside of
    any jitted function, sizes that change as the cause's."""
    lead, other = cause.lead[0].event, group[0].event
    if other.code:
        one, another = lead.changes[0], other.changes[0]
        same = (other.code, other.func) == (lead.code, lead.func)
        if one.kind == another.kind == "weak type":
            return same
        if not one.kind == another.kind == "structure":
            return False
        outer, inner = sorted((one.name, another.name))
        within = re.match(re.escape(outer) + r"([.\[]|$)", inner) is not None
        return within and (same or not _entries(cause.lead).isdisjoint(_entries(group)))
    sizes, others = _sizes_in_turn(cause.lead), _sizes_in_turn(group)
    return bool(others) and len(sizes & others) >= NEARLY_ALL * max(len(sizes), len(others))


def _entries(group: list[JitRecord]) -> set[str]:
    """Entries of a structure that came or went, with their types."""
    changes = (record.event.changes[0] for record in group)
    return {text for change in changes for text in (change.old, change.new) if text}


def _sizes_in_turn(group: list[JitRecord]) -> set[tuple[int, ...]]:
    """The size before and after, of each program that another size of an argument needs."""
    changes = (record.event.changes[0] for record in group)
    return {tuple(sizes) for change in changes if change.kind == "shape" and (sizes := _sizes_of(change))}


#: what another line of the program may well call it with: evaluation beside training, a mode, another model
_OF_THE_CALL = frozenset({"shape", "rank", "static", "structure", "field", "anew"})
#: operations that trace a function of the program's
_TRACING = frozenset({"scan", "while", "cond"})


def _varies(facts: Facts, group: list[JitRecord]) -> bool:
    """Whether an operation outside of jitted functions is compiled for what varies, not for what a program has."""
    changes = [record.event.changes[0] for record in group]
    if len(group) < HABIT - 1:
        return False
    if changes[0].kind == "shape":  # of one dimension: step after step, or more sizes than leaves have
        shapes = {dims(text) or () for change in changes for text in (change.old, change.new)}
        others = {(*one[: changes[0].dim], *one[changes[0].dim + 1 :]) for one in shapes}
        again = len({record.step for record in group}) >= HABIT or len(shapes) >= MANY
        return len(others) == 1 and again
    if changes[0].kind == "parameter":
        return facts.text(group[0].event.func) in _TRACING
    return changes[0].kind == "structure"


def _by_design(facts: Facts, group: list[JitRecord]) -> bool:
    """Whether somebody chose these: sizes that are round (buckets), or the few modes of a static argument. A number is
    a mode where the set-up already needs all of its values, and many steps after it no other."""
    changes = [record.event.changes[0] for record in group]
    if changes[0].kind in ("static", "field"):
        values = {value for change in changes for value in (change.old, change.new)}
        if len(values) > HABIT or not any(map(_NUMBER.fullmatch, values)):
            return len(values) <= HABIT
        last = max(record.step for record in group)
        chosen = group[0].event.code and all(map(str.isdecimal, values))
        return bool(chosen) and last < MANY <= facts.step_count - last
    if changes[0].kind != "shape" or not group[0].event.code:
        return False
    if len(group) == 1 and _differ(changes[0]) > 1:
        return True  # two sorts of batches, as long rows and short ones: no sizes that vary meet so
    if _last_batch(changes):
        return False
    since = (record.step - earlier for earlier, record in zip((0, *(one.step for one in group)), group, strict=False))
    if len(group) < HABIT and all(steps >= MANY for steps in since):
        return True  # phases of the program, as of images that become larger
    sizes = {size for change in changes for size in _sizes_of(change)}
    return len(sizes) > 2 and are_chosen(map(str, sizes))


def _differ(change: ArgumentChange) -> int:
    """In how many dimensions two shapes differ."""
    return sum(map(ne, dims(change.old) or (), dims(change.new) or ()))


def _sizes_of(change: ArgumentChange) -> list[int]:
    shapes = (dims(text) or () for text in (change.old, change.new))
    return [shape[change.dim] for shape in shapes if 0 <= change.dim < len(shape)]


def _last_batch(changes: list[ArgumentChange]) -> int:
    """The size of whole batches, where the only other one is a smaller one; else 0."""
    sizes = [_sizes_of(change) for change in changes]
    seen = {size for pair in sizes for size in pair}
    smaller = all(len(pair) == 2 and pair[1] < pair[0] for pair in sizes)
    return max(seen) if changes[0].dim == 0 and len(seen) == 2 and smaller else 0


# -- causes and advice


class _Text(NamedTuple):
    """Fields: {name}, {old}, {new}, {went}, {dim}, {function}, {others}."""

    cause: str
    advice: str | Callable[[list[JitRecord]], str]


def _advise_shape(group: list[JitRecord]) -> str:
    changes = [record.event.changes[0] for record in group]
    whole = _last_batch(changes)
    if whole:
        return f"Pad the last batch to {whole} rows and mask them, or leave it out (drop_last)."
    sizes = [pair for change in changes if len(pair := _sizes_of(change)) == 2]
    if len(sizes) >= MANY and all(new - old == sizes[0][1] - sizes[0][0] > 0 for old, new in sizes):
        return (
            "{name} is longer in each call, and each length has a program of its own: make it once at its full length, "
            "write into it ({name}.at[i].set(value), or jax.lax.dynamic_update_slice), pass how much of it counts as "
            "an array, and mask the rest."
        )
    if re.search(r"cache|past_key", changes[0].name):
        return (
            "Write into a cache of fixed size with jax.lax.dynamic_update_slice, and pass the position as an array: "
            "what grows by each token has a program for every length."
        )
    return (
        "JAX makes a program for every shape: pad dimension {dim} of {name}{others} to one size, or to a few (buckets: "
        "64, 128, 256), before the call, and mask what was added."
    )


def _advise_dtype(group: list[JitRecord]) -> str:
    """To what each argument was at first."""
    first: dict[str, str] = {}
    for change in (one for record in group for one in record.event.changes if one.kind == "dtype"):
        first.setdefault(change.name, dtype_name(dtype(change.old)))
    code = ", ".join(f"{name}.astype('{kind}')" for name, kind in islice(first.items(), NAMED))
    return f"Convert what comes in another dtype before the call: {code}."


def _advise_static(group: list[JitRecord]) -> str:
    changes = [record.event.changes[0] for record in group]
    if "." in changes[0].name:
        return (
            "Each value of a static argument has a program of its own: pass {name} as an argument that is not static, "
            "where the function only computes with it; where it decides a shape or a loop, use few values."
        )
    few = "Each value of a static argument has a program of its own: use few values of {name}, or pass it as an array."
    if "[" in changes[0].name:  # an entry of one
        return few
    if all(change.new.isdecimal() for change in changes):
        return (
            "Each value of a static argument has a program of its own. A number of turns need not be one: "
            "jax.lax.fori_loop(0, {name}, ...) takes an array, and one jax.lax.scan gives the result of every turn; "
            "within a gradient only scan works, over the most turns, those beyond masked; "
            "take {name} out of static_argnums or static_argnames then. Where it decides a shape, use few values."
        )
    if all(_NUMBER.fullmatch(change.new) for change in changes):
        return (
            "Each value of a static argument has a program of its own: take {name} out of static_argnums or "
            "static_argnames where the function only computes with it; where it decides a shape or a loop, use few "
            "values."
        )
    return few


def _advise_structure(group: list[JitRecord]) -> str:
    changes = [record.event.changes[0] for record in group]
    if len(changes) >= HABIT - 1 and all(
        _ENTRY.match(one.new.removeprefix(one.name)) and not one.old for one in changes
    ):
        return (
            "{name} is longer in each call, and each length has a program of its own: empty it before the next call "
            "(what Flax collects by sow, with nnx.pop(model, nnx.Intermediate)), or keep the entries in an array of "
            "fixed size."
        )
    return "Give {name} the same keys, lengths and None entries in every call."


def _advise_anew(group: list[JitRecord]) -> str:
    optimizer = (
        " What varies in an optimizer, as its learning rate, belongs to its state, which is arrays: a schedule that "
        "counts steps, or optax.inject_hyperparams(optax.adam)(learning_rate=...), with "
        "opt_state.hyperparams['learning_rate'] = jnp.asarray(value, jnp.float32) wherever it is to change."
    )
    changes = (change for record in group for change in record.event.changes)
    return (
        "Make it once, outside of the loop, and pass the same object in every call: a model, an optimizer or a "
        "function that is made anew is another one to JAX, though its arrays have the same shapes."
        + optimizer
        * any(_TRANSFORMATION.search(change.new) for change in changes)
    )


_TEXTS = {
    "shape": _Text("The shape of {name}{others} changed {went}", _advise_shape),
    "rank": _Text("The rank of {name} changed {went}", "Give {name} the same number of dimensions in every call."),
    "dtype": _Text("The dtype of {name}{others} changed {went}", _advise_dtype),
    "weak type": _Text(
        "{name} went from {old} to {new}: a number of Python's has a weak type, which is another type to JAX",
        "Make {name} an array of one dtype from the first call on: give a dtype where it is made of a number "
        "(jnp.full(shape, value, dtype=...), jnp.asarray(value, dtype=...)); what is computed of it follows.",
    ),
    "sharding": _Text(
        "The sharding of {name} changed {went}",
        "Give {name} one sharding before the first call (jax.device_put(x, sharding)), or state in_shardings and "
        "out_shardings, so that results come back as they went in.",
    ),
    "device": _Text(
        "The device of {name} changed {went}",
        "Put all of {root} where the first call's result has it, once, before that call: {root} = "
        "jax.device_put({root}, {there}). What a call returns is committed to its devices, and a fresh array is not.",
    ),
    "static": _Text("The static argument {name} changed {went}", _advise_static),
    "field": _Text(
        "{name}, which is no array and so a part of the program, changed {went}",
        "Make {name} an array of one dtype (jnp.asarray(value, jnp.float32): without a dtype it has a weak type, which "
        "is another type to JAX), or pass it as an argument, where the function only computes with it: what a pytree "
        "has besides arrays (static fields, a module's Python numbers, all that is no array to equinox.filter_jit) is "
        "part of the program, and each value has one of its own. An array of a model is trained with it: where it must "
        "not be, take jax.lax.stop_gradient of it, and no weight decay.",
    ),
    "anew": _Text(
        "{name}{besides} is another object than before, of the same text ({new}), and JAX compares it by identity",
        _advise_anew,
    ),
    "structure": _Text(
        "The structure of {name} changed: {old} was there before, and {new} is now",
        _advise_structure,
    ),
    "function": _Text(
        "Each call has a new function object of the same code, and a program belongs to one object",
        "Define {function} and call jax.jit on it once, outside the loop (of a method, keep the object that it belongs "
        "to); pass what varies as an argument, not by a closure, a lambda or functools.partial.",
    ),
    "options": _Text(
        "jit was called again with other options (donated or static arguments, shardings, device)",
        "Call jax.jit once, with one set of options, and keep the result.",
    ),
    "config": _Text(
        "JAX's configuration changed{config}",
        "Call {function} under the same configuration each time: set it once at the start, and use no context manager "
        "around some of the calls.",
    ),
    "evicted": _Text(
        "The program was there before and had been dropped: JAX's caches were cleared (jax.clear_caches())",
        "Clear no caches in the loop.",
    ),
    "unknown": _Text(
        "Nothing that xlaprof compares differs from an earlier call, and JAX made the program again",
        "jax.config.update('jax_explain_cache_misses', True) has JAX print its own reason. {function}.clear_cache(), "
        "or a cache that is full, drops programs.",
    ),
}  # fmt: skip
#: outside of any jitted function
_OUTSIDE = {
    "shape": _Text(
        "What runs outside of any jitted function ({function}) is a program of its own for every shape: {name} "
        "changed {went}",
        "Do this inside a jitted function, on arrays of one size (padded, masked: jnp.where in place of a selection by "
        "a mask, jnp.nonzero(mask, size=...)); or with NumPy, before they come to the device.",
    ),
    "parameter": _Text(
        "This line, or what it calls, runs JAX's {function} outside of any jitted function, and the function that it "
        "is given is a new object each time: it is traced and compiled at every call",
        "Put {caller} under jax.jit, which is made once: what it calls is then traced once.",
    ),
    "structure": _Text(
        "{function} joins a list of {arrays}, outside of any jitted function, and has a program for every number of "
        "them, with as many arguments",
        "Collect what belongs together in one array: the results of jax.lax.scan are stacked; or write into an array "
        "of fixed size (x.at[i].set(value)), or join on the host: np.stack(jax.device_get(values)).",
    ),
}


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each function and cause."""
    for group in (*facts.once(sort_out).found, *_joins(facts)):
        yield _finding(facts, group)


def _joins(facts: Facts) -> Iterable[Group]:
    """Operations of very many arrays, by line: each program of them is one too many, the first as well."""
    changes = [ArgumentChange("structure")]
    joins = (JitRecord(replace(event, changes=changes), -1, False) for event in facts.run.jit.joins)
    return [Group(lead, []) for lead in grouped(joins, lambda one: facts.place(one.event.stack).at).values()]


def compiled_outside(facts: Facts) -> set[tuple[str, int]]:
    """Lines of operations outside of jitted functions that are findings of this kind, and not only dropped."""
    groups = [one.records for one in (*facts.once(sort_out).found, *_joins(facts)) if not _is_dropped(one.lead)]
    return {facts.place(one.event.stack).at for group in groups for one in group if not one.event.code}


def dropped(facts: Facts) -> Counter[int]:
    """ns of compiling operations outside of jitted functions again, whose programs were dropped, by Stack id."""
    found: Counter[int] = Counter()
    for group in facts.once(sort_out).found:
        for one in group.records if _is_dropped(group.lead) else ():
            found[one.event.stack] += 0 if one.event.code else one.event.dur
    return found


def _finding(facts: Facts, cause: Group) -> Finding:
    group, records = cause.lead, sorted(cause.records, key=lambda one: one.event.t)
    event, change = group[0].event, group[0].event.changes[0]
    changes = [record.event.changes[0] for record in group]
    known = _TEXTS if event.code else _TEXTS | _OUTSIDE
    text = known.get(change.kind, _TEXTS["function"])
    advice = text.advice if isinstance(text.advice, str) else text.advice(group)
    fields = _fields(facts, cause)
    cost = _ns(records) / 1e9
    name = fields["function"]
    was = "were" if "," in name else "was"
    again = [one for one in records if one.event.code]
    what = f"{name} {was} compiled again {times(len(again))}" if event.code else plural(len(records), "program")
    if again and len(again) < len(records):
        what += f", and {_outside(facts, records)}"
    return facts.finding(
        "recompile",
        facts.place(event.stack),
        operation=JAX,
        count=len(records),
        counted=Known(tuple(Moment(one.event.t, one.event.dur, detail=_went(one)) for one in records)),
        cost_s=cost,
        cause=f"{_filled(text.cause, fields)}: {what}, {duration(cost)} in all.",
        advice=_filled(advice, fields),
        change=FromTo(change.kind, change.old, change.new),
        evidence=listed([_evidence(record) for record in records]),
        discriminator=f"{name} {change.kind} {change.name}",
        also=[facts.place(one) for record in records for one in (record.event.stack, record.event.code)],
        values=values((one.old, one.new) for one in changes),
    )


def _outside(facts: Facts, records: list[JitRecord]) -> str:
    """What of them are operations outside of jitted functions."""
    outside = [one for one in records if not one.event.code]
    names = dict.fromkeys(facts.text(one.event.func) for one in outside)
    lines = dict.fromkeys(short(facts.place(one.event.stack)) for one in outside)
    where = ", ".join(islice(lines, NAMED))
    return f"{', '.join(islice(names, NAMED))} at {where}, outside of any jitted function, {times(len(outside))}"


def _fields(facts: Facts, cause: Group) -> dict[str, str]:
    group = cause.lead
    change = group[0].event.changes[0]
    went = {(one.old, one.new) for one in (record.event.changes[0] for record in group)}
    changes = (one for record in group for one in record.event.changes if one.kind == change.kind)
    others = [name for name in dict.fromkeys(one.name for one in changes) if name != change.name]
    of = [one for one in cause.records if one.event.code] or cause.records
    functions = dict.fromkeys(facts.text(record.event.func) for record in of)
    more = f", and {plural(len(went) - 1, 'further change')}" if len(went) > 1 else ""
    several = len({record.event.changes[0].name for record in group}) > 1  # elements: it is the list that differs
    return {
        "name": (re.sub(r"\[\d+\]$", "", change.name) if several else change.name) or "an argument",
        "root": re.split(r"[.\[]", change.name)[0] or "the argument",
        "there": "jax.NamedSharding(mesh, jax.P())" if "," in change.new else "device",
        "old": change.old or "nothing",
        "new": change.new or "nothing",
        "went": f"from {change.old} to {change.new}{more}",
        "dim": str(max(change.dim, 0)),
        "function": ", ".join(list(functions)[:4]),
        "others": f" (and of {', '.join(others[:3])})" if others else "",
        "besides": f" (and {', '.join(others[:3])})" if others else "",
        "caller": facts.place(group[0].event.stack).func or "the function around this line",
        "arrays": plural(max(record.event.arrays for record in group), "array"),
        "config": f": {change.name} went from {change.old} to {change.new}" if change.name else "",
    }


def _filled(text: str, fields: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), text)


def _went(record: JitRecord) -> str:
    change = record.event.changes[0]
    return f"{change.old} -> {change.new}" if change.old or change.new else change.kind


def _evidence(record: JitRecord) -> str:
    when = f"step {record.step}" if record.step > 0 else f"program {record.event.versions + 1}"
    others = [f"{one.name} {one.old} -> {one.new}".strip() for one in record.event.changes[1:4]]
    too = f"; differs too: {', '.join(others)}" if others else ""
    return (
        f"{when}: {duration(record.event.dur / 1e9)}, {f'{record.event.changes[0].name} {_went(record)}'.strip()}{too}"
    )
