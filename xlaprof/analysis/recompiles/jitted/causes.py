"""What JAX's program was made again for, in words, and what to write instead: one text for each kind of change."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.model import Place
from xlaprof.analysis.principles import HABIT, MOST, NAMED
from xlaprof.analysis.shapes import dtype, dtype_name
from xlaprof.analysis.statements import nodes
from xlaprof.events import JitCompile
from xlaprof.text.quantities import duration

from .sizes import grows, last_batch

_ENTRY = re.compile(r"\[\d+\]")  # of a list
_TRANSFORMATION = re.compile(r"\b(init|update)_fn\b")  # of optax, by the names that its functions have
_DROPOUT = re.compile(r"drop\w*(\[[^]]*\])*\.rate$")  # Flax's, which tests it by ==
#: kinds of changes of what is no array, and so a part of the program
PARTS = frozenset({"static", "field"})
NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")


def root_of(name: str) -> str:
    """The argument that something is a part of."""
    return re.split(r"[.\[]", name)[0]


class Text(NamedTuple):
    """Fields: {name}, {old}, {new}, {went}, {dim}, {sizes}, {function}, {others}."""

    cause: str
    advice: str | Callable[[list[JitRecord]], str]


def _advise_shape(group: list[JitRecord]) -> str:
    changes = [record.event.changes[0] for record in group]
    whole = last_batch(changes)
    if whole:
        return f"Pad the last batch to {whole} rows and mask them, or leave it out (drop_last)."
    if re.search(r"cache|past_key", changes[0].name):
        return (
            "Write into a cache of fixed size with jax.lax.dynamic_update_slice, and pass the position as an array: "
            "what grows by each token has a program for every length."
        )
    if grows(changes):
        return (
            "{name}{besides} is longer each time, and each length has a program of its own: pass it at its full length "
            "(what comes piece by piece is written there: {name}.at[i].set(value), or jax.lax.dynamic_update_slice), "
            "pass how much of it counts as an array, and mask the rest."
        )
    return (
        "JAX makes a program for every shape: pad dimension {dim} of {name}{others} to {sizes}, before the call, and "
        "mask what was added."
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
            "Each value of a static argument has a program of its own. Where {name} decides a shape, give the largest "
            "in every call and mask what is beyond it, or use few values. Else take {name} out of static_argnums or "
            "static_argnames: jax.lax.fori_loop(0, {name}, ...) takes an array for the number of turns (within a "
            "gradient: jax.lax.scan over the most turns, those beyond masked), an array of JAX's takes one for a "
            "position, and jnp.where decides in place of an if."
        )
    if all(NUMBER.fullmatch(change.new) for change in changes):
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


def _advise_outside(group: list[JitRecord]) -> str:
    if grows([record.event.changes[0] for record in group]):
        return (
            "What comes piece by piece, keep in a list and join once, at the end "
            "(np.concatenate(jax.device_get(pieces))), or write into an array of full size (array.at[i].set(value), in "
            "a jitted function)."
        )
    return (
        "Bring the arrays to the host before this, with one jax.device_get, and go on with NumPy, which compiles "
        "nothing: where values decide how many there are (a selection by a mask, nonzero, unique), no jitted function "
        "can do it. Or keep one size in a jitted function, and mask what is padded: jnp.where in place of a selection, "
        "jnp.nonzero(mask, size=...), jax.lax.top_k."
    )


def _advise_field(group: list[JitRecord]) -> str:
    if _DROPOUT.search(group[0].event.changes[0].name):
        return (
            "Write the dropout with a rate that is an array: nnx.Dropout tests {name} in Python, so that no array can "
            "stand in for it. In a layer of your own, self.rate = nnx.Variable(jnp.asarray(0.0, jnp.float32)); keep = "
            "jax.random.bernoulli(self.rngs.dropout(), 1 - self.rate[...], x.shape); return jnp.where(keep, x / (1 - "
            "self.rate[...]), 0). Then {name}.set_value(np.float32(value)) needs no other program. Or use few values."
        )
    if not re.search(r"[.\[]", group[0].event.changes[0].name):  # no part of a model: an argument by itself
        return (
            "Pass {name} as an array of one dtype, where the function only computes with it: jnp.asarray(value, "
            "jnp.float32) in the call (without a dtype it has a weak type, which is another type to JAX). What is no "
            "array, as a number of Python's, is static to equinox.filter_jit, and each value has a program of its own: "
            "where it decides a shape, a number of turns or a branch, use few values."
        )
    return (
        "Make {name} an array of one dtype (jnp.asarray(value, jnp.float32): without a dtype it has a weak type, which "
        "is another type to JAX), or pass it as an argument, where the function only computes with it: what a pytree "
        "has besides arrays (static fields, a module's Python numbers, all that is no array to equinox.filter_jit) is "
        "part of the program, and each value has one of its own. An array of a model is trained with it, but for an "
        "nnx.Variable under wrt=nnx.Param: where it must not be, take jax.lax.stop_gradient of it, and no weight decay."
    )


def _advise_anew(group: list[JitRecord]) -> str:
    return (
        "Make it once, outside of the loop, and pass the same object in every call: a model, an optimizer or a "
        "function that is made anew is another one to JAX, though its arrays have the same shapes."
        + _of_an_optimizer(group)
    )


def _advise_traced(group: list[JitRecord]) -> str:
    static = (
        " What it is given besides arrays, and decides a shape, a number of turns or a branch, must be static: "
        "jax.jit(..., static_argnames={static})."
    )
    for handed in made_anew(group):
        name, _, data = handed.removesuffix(")").partition("(")
        given = f" (what {name} closes over: {data})" * bool(data)
        return (  # a function is no argument of a jitted one, and a static one is compared by identity
            f"Put what {{hands}} does with {name} into one function under jax.jit, which is made once, makes {name} "
            f"itself, and is given the data as arguments{given}: jax.jit of what {name} "
            "is passed to, with a new one in each call, would compile as often." + static
        )
    return "Put {caller} under jax.jit, which is made once{method}: what it calls is then traced once." + static


def _advise_function(group: list[JitRecord]) -> str:
    held = ", ".join(islice(made_anew(group), NAMED))
    return (
        f"Make {held} once, outside of the loop, and call jax.jit on what holds it once, after that; pass what varies "
        "as an argument."
        if held
        else "Define {function} and call jax.jit on {it} once, outside the loop (of a method, keep the object that it "
        "belongs to); pass what varies as an argument, not by a closure, a lambda or functools.partial."
    ) + _of_an_optimizer(group)


def made_anew(group: list[JitRecord]) -> dict[str, str]:
    """What functions that are made anew hold that is made anew as well, by name: what it is."""
    changes = (change for record in group for change in record.event.changes[1:])
    return {change.name.split(".")[0]: change.new for change in changes if change.kind == "anew"}


def shown(function: str) -> str:
    """Its qualified name without what is no name."""
    return function.replace(".<locals>", "")


def maker_of(function: str) -> str:
    """The function within which another one is defined, by its qualified name; "": a module or class."""
    return function.rpartition(".<locals>.")[0]


def _of_an_optimizer(group: list[JitRecord]) -> str:
    """What to do besides where an optimizer is made anew."""
    changes = (change for record in group for change in record.event.changes)
    return any(_TRANSFORMATION.search(change.new) for change in changes) * (
        " What varies in an optimizer, as its learning rate, belongs to its state, which is arrays: a schedule that "
        "counts steps, or optax.inject_hyperparams(optax.adam)(learning_rate=...), with "
        "opt_state.hyperparams['learning_rate'] = jnp.asarray(value, jnp.float32) wherever it is to change."
    )


#: where a line calls functions that run operations, whose sizes follow from what the line gives them
CALLED = (
    "Put what {line} calls into one function under jax.jit (of Flax nnx.jit, of Equinox filter_jit), made once: a "
    "program for each size, and not for each operation. And pad what it is given to a few sizes, and mask the padding."
)
OF_A_LIBRARY = (
    "Make the object that {function} belongs to once, outside the loop, and use that in every call: the library has a "
    "function for each object. Pass what varies as an argument, not by a closure, a lambda or functools.partial."
)
#: of functions that another one defines, with functions that they call
DEFINED_INSIDE = (
    "Define {function} and {beside} once, outside of {maker}, which makes them anew again and again, and call jax.jit "
    "there; pass the data that they close over as arguments, to {beside} as well.{once}"
)
TEXTS = {
    "shape": Text("The shape of {name}{others} changed {went}", _advise_shape),
    "rank": Text("The rank of {name} changed {went}", "Give {name} the same number of dimensions in every call."),
    "dtype": Text("The dtype of {name}{others} changed {went}", _advise_dtype),
    "weak type": Text(
        "{name}{besides} went from {old} to {new}: a number of Python's has a weak type, which is another type to JAX",
        "Give {name}{besides} one dtype from the first call on, where it is made of a number (jnp.full(shape, value, "
        "dtype=...), jnp.asarray(value, dtype=...)): what is computed of it follows.",
    ),
    "sharding": Text(
        "The sharding of {name} changed {went}",
        "Give {name} one sharding before the first call (jax.device_put(x, sharding)), or state in_shardings and "
        "out_shardings, so that results come back as they went in.",
    ),
    "device": Text(
        "The device of {name} changed {went}",
        "Put all of {root} where the first call's result has it, once, before that call: {root} = "
        "jax.device_put({root}, {there}). What a call returns is committed to its devices, and a fresh array is not.",
    ),
    "static": Text("The static argument {name}{besides} changed {went}", _advise_static),
    "field": Text(
        "{name}{besides}, which is no array and so a part of the program, changed {went}",
        _advise_field,
    ),
    "anew": Text(
        "{name}{besides} is another object than before, of the same text ({new}), and JAX compares it by identity",
        _advise_anew,
    ),
    "structure": Text(
        "The structure of {name} changed: {old} was there before, and {new} is now",
        _advise_structure,
    ),
    "function": Text(
        "Each call has a new function object of the same code{made}{held}, and a program belongs to one object",
        _advise_function,
    ),
    "options": Text(
        "jit was called again with other options (donated or static arguments, shardings, device)",
        "Call jax.jit once, with one set of options, and keep the result.",
    ),
    "config": Text(
        "JAX's configuration changed{config}",
        "Call {function} under the same configuration each time: set it once at the start, and use no context manager "
        "around some of the calls.",
    ),
    "evicted": Text(
        "The programs were there before and had been dropped: jax.clear_caches() clears JAX's caches{cleared}",
        "Clear no caches in the loop: compiled programs hold no arrays of the calls, and are needed in the next turn.",
    ),
    "unknown": Text(
        "Nothing that xlaprof compares differs from an earlier call, and JAX made the program again",
        "jax.config.update('jax_explain_cache_misses', True) has JAX print its own reason. {function}.clear_cache(), "
        "or a cache that is full, drops programs.",
    ),
}  # fmt: skip
#: outside of any jitted function
OUTSIDE = {
    "shape": Text(
        "What runs outside of any jitted function ({function}) is a program of its own for every shape: {name} "
        "changed {went}",
        _advise_outside,
    ),
    "selection": Text(
        "{selected} selects another number of elements each time ({amounts}), and what runs on them outside of any "
        "jitted function ({function}) is a program of its own for every number",
        _advise_outside,
    ),
    "parameter": Text(
        "This line, or what it calls, runs JAX's {function} outside of any jitted function, and the function that it "
        "is given is a new object each time{held}: it is traced and compiled at every call",
        _advise_traced,
    ),
    "structure": Text(
        "{function} joins a list of {arrays}, outside of any jitted function, and has a program for every number of "
        "them, with as many arguments",
        "Collect what belongs together in one array: the results of jax.lax.scan are stacked (in a function under "
        "jax.jit: elsewhere each call compiles it); or write into an array of fixed size (x.at[i].set(value)), or join "
        "on the host: np.stack(jax.device_get(values)).",
    ),
    "list": Text(
        "{function} joins a list of {arrays}, outside of any jitted function, and has a program for every number of "
        "them; what is computed of the result is as long, and compiled for each length, too: {along}",
        "Keep the values in one array of full size, made once, and write each of them there (x.at[i].set(value), or "
        "jax.lax.dynamic_update_slice, in a jitted function); pass the whole of it, and how much of it counts as an "
        "array, and mask the rest. Where nothing needs the list before the end, the results of jax.lax.scan are "
        "stacked, in a function under jax.jit.",
    ),
}


# -- what a group has in common


def in_numbers(record: JitRecord) -> JitRecord:
    """The same, by the numbers alone in which the call differs, where a program had these operations before: whatever
    else differs was given to that one, and needs no other."""
    changes = record.event.changes
    numbers = [one for one in changes if one.kind in PARTS and NUMBER.fullmatch(one.old) and NUMBER.fullmatch(one.new)]
    if not numbers or record.other or not record.event.content or changes[0].kind not in PARTS:
        return record
    return replace(record, event=replace(record.event, changes=numbers))


def led_by_one(group: list[JitRecord]) -> list[JitRecord]:
    """Numbers of one object, which differ at some calls or others, with that one first which differs at most."""
    count = Counter(one.name for record in group for one in record.event.changes)
    found = ((one, sorted(one.event.changes, key=lambda change: -count[change.name])) for one in group)
    led = [replace(one, event=replace(one.event, changes=changes)) for one, changes in found]
    return sorted(led, key=lambda one: (-count[one.event.changes[0].name], one.event.t))


def changed_too(group: list[JitRecord], share: float = MOST) -> list[str]:
    """Other values that are parts of the program, and changed at most of the same calls: each by itself needs as many
    programs."""
    changes = [one.event.changes for one in group]
    if changes[0][0].kind not in PARTS:
        return []
    count = Counter(name for some in changes for name in {one.name for one in some[1:] if one.kind in PARTS})
    return [name for name, times in count.most_common() if name != changes[0][0].name and times >= share * len(group)]


def names_mode(event: JitCompile) -> bool:
    """Whether a text that is part of the program differs: somebody wrote each, as a mode's name."""
    texts = ((one.old[:1], one.new[:1]) for one in event.changes if one.kind in PARTS)
    return any({old, new} <= {"'", '"'} for old, new in texts)


def modes_of(record: JitRecord) -> set[str]:
    """What the closure of a function holds that is another one than in any call before, and no number: the kernel, the
    loss or the mode that it was made for, each of which needs a program. Empty: what it holds was there before."""
    changes = record.event.changes
    held = changes[1:] if changes[0].kind == "function" else []
    modes = (one for one in held if one.kind == "field" and one.old and one.new)
    return {text for one in modes for text in (one.old, one.new) if not NUMBER.fullmatch(text)}


def what_it_holds(group: list[JitRecord]) -> str:
    """What a function that is made anew has by its closure, where that differs; or what an operation is traced for."""
    changes = [change for record in group for change in record.event.changes[1:]]
    numbers = [f"{one.name} went from {one.old} to {one.new}" for one in changes if one.kind == "field" and one.old]
    if changes and group[0].event.changes[0].kind == "parameter":
        made = {handed.partition("(")[0]: shown(maker_of(text)) for handed, text in made_anew(group).items()}
        return "".join(f", as {name} is{f', which {maker} makes' * bool(maker)}" for name, maker in made.items())
    told = [*dict.fromkeys(numbers), *(f"another {name}" for name in made_anew(group))][:NAMED]
    return f" (what it holds differs: {', '.join(told)})" if told else ""


def length_given(code: str) -> str:
    """The name that a line gives jax.lax.scan for the number of turns, quoted; "": it gives none."""
    lengths = (one.value for call in nodes(code, ast.Call) for one in call.keywords if one.arg == "length")
    return next((repr(one.id) for one in lengths if isinstance(one, ast.Name)), "")


def caller_of(line: Place) -> str:
    """What is to be put under jax.jit for all that a line calls."""
    turn = f"the loop at line {line.loop} does in a turn" if line.loop else f"line {line.line} does"
    module = f"what {turn}, as one function," if line.line else "the function around this line"
    return module if line.func[:1] in "<" or line.library else line.func


def of_a_method(name: str) -> str:
    """How to put it under jax.jit: @jax.jit would take ``self`` for an array."""
    return (
        f"a method: self.{name} = jax.jit(self.{name}) in __init__; what it reads of self then stays as at the first "
        "call: pass what changes"
    )


def made(facts: Facts, group: list[JitRecord]) -> dict[str, str]:
    """The function that makes others anew, and what else of theirs: functions that it defines as well, and objects."""
    maker = maker_of(facts.place(group[0].event.code).func) if group[0].event.code else ""
    texts, told = made_anew(group), shown(maker)
    beside = [name for name, text in texts.items() if maker and maker_of(text) == maker]
    once = ", ".join([name for name in texts if name not in beside][:NAMED])
    several = len({one.event.code for one in group}) > 1
    return {
        "maker": told,
        "made": f", which {told} makes" if maker and (several or beside) else "",
        "hands": told_of(facts, group[0].event.stack, next(iter(texts.values()), "")),
        "beside": ", ".join(beside[:NAMED]),
        "once": f" Make {once} once, before that." if once else "",
    }


def told_of(facts: Facts, stack: int, function: str) -> str:
    """What is to be one jitted function that makes ``function`` itself: what makes it; of a library's, what calls."""
    own = {shown(one.func) for one in facts.names.frames(stack) if not one.library}
    maker = shown(maker_of(function))
    return maker if maker in own else caller_of(facts.place(stack))


def filled(text: str, fields: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), text)


def from_to(record: JitRecord) -> str:
    change = record.event.changes[0]
    return f"{change.old} -> {change.new}" if change.old or change.new else change.kind


def evidence_of(record: JitRecord) -> str:
    when = f"step {record.step}" if record.step > 0 else f"program {record.event.versions + 1}"
    others = [f"{one.name} {one.old} -> {one.new}".strip() for one in record.event.changes[1:4]]
    too = f"; differs too: {', '.join(others)}" if others else ""
    change = f"{record.event.changes[0].name} {from_to(record)}".strip()
    return f"{when}: {duration(record.event.dur / 1e9)}, {change}{too}"


def entries(group: list[JitRecord]) -> set[str]:
    """Entries of a structure that came or went, with their types."""
    changes = (record.event.changes[0] for record in group)
    return {text for change in changes for text in (change.old, change.new) if text}
