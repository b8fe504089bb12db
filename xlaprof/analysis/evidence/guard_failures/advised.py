"""Advice for guards that fail, where it depends on more than their kind: on sizes, and on Python values.

A value that changes again and again is meant to change: what lets it change without another graph is advised, never to
keep it constant. What makes a variable of a number, in which place and of which type, was tried with PyTorch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from xlaprof.analysis.evidence.guard_failures.case import (
    FIXED_SHAPES,
    KEYS_OF,
    NUMBER,
    Case,
    container,
    dims_of,
    filled,
    is_argument,
    size_of,
)
from xlaprof.analysis.principles import HABIT
from xlaprof.analysis.shapes import are_chosen
from xlaprof.events import Guard
from xlaprof.text.strings import enumerated

#: what to do where a line needs a number as such, and what the line does with it
NEEDS = {
    "condition": ("Compute both branches in each call and choose with torch.where", "branches on it"),
    "loop": ("Run the largest number of passes in each call and drop with torch.where what is beyond", "loops by it"),
    "size": (
        "Take the largest size in each call, and mask with torch.where what is beyond where no mask hides that yet",
        "makes a size of it",
    ),
    "place": (
        "Read there with index_select() and write with index_copy_(), which take a tensor of one element",
        "takes it as one of several indices",
    ),
}

_DROPPED = "x * (torch.rand_like(x) < keep) / keep, where the module trains"
#: of a list or a dict that is filled, and whose length stays a part of the graph where it is read
_READ_TOO = (
    "Where it reads {name}, too (torch.stack), let a tensor of fixed size (a buffer) hold what is read, rolled at "
    "each call or with a row for each key, and a count in a tensor: else its length stays a part of the graph."
)
_EACH = "each of its values has a graph of its own."
_OVER = re.compile(r"\((async )?for .+ in .+")  # the head of a loop, behind its line
#: of a guard on the modules that a module holds, how many they are or what they are called
_OF_WHICH_MODULES = re.compile(r"_modules(?:'\])?(?=[),]|$)")
#: with it PyTorch makes variables of whole numbers that modules hold; its hint names it, wherever one was made constant
_OF_MODULES = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"

# -- sizes


def variable(name: str) -> str:
    """An input as code can name it; what is none has the name x."""
    return name if re.fullmatch(r"[\w.]+(\[[\w'\"]+\][\w.]*)*", name) else "x"


def mark(name: str, dims: Sequence[int]) -> str:
    """The call that marks dimensions of an input dynamic."""
    return f"torch._dynamo.maybe_mark_dynamic({name}, {dims[0] if len(dims) == 1 else list(dims)})"


def marks(guards: Iterable[Guard]) -> Iterator[str]:
    """The same for each input that guards are on."""
    for name, some in _by_input(guards):
        yield mark(variable(name), dims_of(some))


def _by_input(guards: Iterable[Guard]) -> Iterator[tuple[str, list[Guard]]]:
    for name, some in groupby(sorted(guards, key=lambda one: one.subject), key=lambda one: one.subject):
        yield name, list(some)


def _dimensions(name: str, dims: Sequence[int]) -> str:
    return f"{'dimension' if len(dims) == 1 else 'dimensions'} {enumerated(list(map(str, dims)), len(dims))} of {name}"


def shape(guard: Guard, case: Case) -> str:
    """Of an input whose size changed, and of others whose sizes changed with it."""
    name = guard.subject or "the input"
    dims = dims_of(one for one in (guard, *case.guards) if one.subject == guard.subject)
    dim = max(guard.dim, 0)
    if "force_parameter_static_shapes" in guard.hint:
        return (
            f"{name} is a parameter, whose sizes are constants of the graph: keep its size, or set "
            "torch._dynamo.config.force_parameter_static_shapes = False."
        )
    if re.search(r"past_key_values|cache", name):
        return "Generate with a cache of fixed size (cache_implementation='static'), which does not grow by each token."
    before, now = size_of(guard.old, dim), size_of(guard.new, dim)
    taken = {one for each in case.guards for one in (size_of(each.old, dim), size_of(each.new, dim)) if one is not None}
    is_last_batch = len(taken) <= 2 and dims == [0] and before is not None and now is not None and now < before
    others = [(one, dims_of(some)) for one, some in _by_input(case.others)]
    if is_last_batch:
        pad = f"pad the last batch to {before} or leave it out (drop_last=True, where a DataLoader draws it)"
    elif len(dims) == 1 and 1 < len(taken) <= HABIT and are_chosen(map(str, taken)):
        pad = f"keep these {len(taken)} sizes, each of which is compiled once"
    else:
        alike = [one for one, its in others if its == dims]
        apart = [_dimensions(one, its) for one, its in others if its != dims]
        padded = [_dimensions(enumerated([name, *alike], len(others) + 1), dims), *apart]
        # to a few they are padded already, of which each has a graph
        few = len(dims) == 1 and not apart and len(taken) > 1 and are_chosen(map(str, taken))
        pad = f"pad {enumerated(padded, len(padded))} to {f'one size, {max(taken)}' if few else 'a few sizes'}"
    if case.backend in FIXED_SHAPES:
        return f"{pad[:1].upper()}{pad[1:]}: this backend compiles a program for every size."
    if _OVER.search(case.asked):
        return (
            f"{case.asked} goes through the dimension in Python, so that each size is another number of turns in one "
            "graph: compile what one turn computes, a function or module of its own, and leave the loop around it "
            f"uncompiled, which is one graph for all sizes; or {pad}."
        )
    if case.asked:
        return (
            f"{case.asked} needs the size as a number, so that it cannot be dynamic: decide outside the compiled "
            f"function, {pad}, or write the code without the number."
        )
    if case.specialized:
        return (
            "Something makes this size a constant, so that it cannot be dynamic: a loop, a list, a number made of it, "
            f"or the backend (inductor's backward of a convolution does): {pad}, or write the code without the number."
        )
    marked = mark(variable(name), dims)
    if not case.handed_over:
        marked = f"{mark('x', dims)} on the tensor x that is passed as {name}"
    if same := [one for one, its in others if its == dims]:
        marked += f" and the same for {' and '.join(same)}"
    marked += "".join(f", {mark(variable(one), its)}" for one, its in others if its != dims)
    if taken & {0, 1}:
        more = f", and mark the dimension dynamic: {marked}" if len(taken) > 2 else ""
        return _apart(guard, min(taken), more)
    what = "the dimension" if len(dims) == 1 and not others else "the dimensions"
    how = "with dynamic=True"
    if case.dynamic == "False":
        how = "without dynamic=False, which makes one graph for the first size and one for all others"
    if others and case.dynamic == "False":  # one change for all of them, and for numbers that go with the sizes
        return f"Compile {how}; or mark {what} dynamic before the first call, {marked}; or {pad}."
    return f"Mark {what} dynamic before the first call, {marked}, or compile {how}; or {pad}."


def _apart(guard: Guard, size: int, others: str = "") -> str:
    name, dim = guard.subject or "the input", max(guard.dim, 0)
    return (
        f"torch.compile compiles a size of 0 or 1 apart, also of a dynamic dimension: pad dimension {dim} of {name} to "
        f"2 or more where it is {size}{others}; or call torch._dynamo.decorators.mark_unbacked({variable(name)}, "
        f"{dim}) before."
    )


def bound(guard: Guard, case: Case) -> str:
    """Of an input whose size the code asks about."""
    name, dim = guard.subject or "the input", max(guard.dim, 0)
    size = size_of(guard.new, dim)
    if size in (0, 1):
        return _apart(guard, size)
    pad = f"pad dimension {dim} of {name} so that it stays on one side of that bound"
    return f"The code asks about this size: decide outside the compiled function, or {pad}."


def layout(guard: Guard, case: Case) -> str:
    """Of an input whose stride changed. ``contiguous()`` leaves that of a dimension of size 1 as it is."""
    name, clone = guard.subject or "the input", ".clone(memory_format=torch.contiguous_format)"
    of_one = f" (where dimension {guard.dim} has the size 1, {name}{clone})" * (guard.dim >= 0)
    return (
        f"Call {name}.contiguous(){of_one} before the call, and the same for what else the call is given that was made "
        "with it or like it: PyTorch names the first tensor whose memory layout differs, and each must be the same "
        "each time. What a library makes, a forward hook of the module that hands it over can return contiguous."
    )


# -- Python values


def value(guard: Guard, case: Case) -> str:
    """Of a Python value that is a constant of the graph."""
    name = guard.subject
    if "param_groups" in name:
        return (
            "Make the learning rate a tensor where the optimizer is made, lr=torch.tensor(0.1), and let what sets it "
            "write into that, group['lr'].fill_(value), as PyTorch's schedulers do: a number that is assigned is a "
            "constant of the graph again."
        )
    kept = next((kept for one in case.guards if (kept := filled(one)) and name.startswith(f"{kept}[")), "")
    if kept:
        return (
            f"Let {kept} be filled outside the compiled function, where that only fills it: return what it is filled "
            f"with, and put it there after the call. Here each new entry, and each number in one, is a part of the "
            f"graph. {_READ_TOO.format(name=kept)}"
        )
    values = [value for one in case.guards for value in (one.old, one.new) if value]
    if values and all(re.fullmatch(NUMBER, value) for value in values):
        return _number(guard, case, values)
    if len(case.guards) > 1 and case.need and set(values) <= {"True", "False"}:
        return _switch(guard, case)
    return _choice(guard, case)


def _holder(guard: Guard) -> tuple[str, str]:
    """What a number lies in, or it itself, and that it is a buffer, if a module has it."""
    held = container(guard) or _read_in(guard.subject)
    return held, " (a buffer, if it is a module's)" if "." in held else ""


def _read_in(subject: str) -> str:
    """``self.clip`` of ``(1.0 + self.clip)``: what of an expression somebody can set, where that is one thing."""
    read = set(re.findall(r"[^\W\d][\w.]*", subject)) if subject.startswith("(") else set()
    return read.pop() if len(read) == 1 else subject


def _switch(guard: Guard, case: Case) -> str:
    """Of True and False by turns, by which a line branches or loops."""
    (instead, does), (held, buffer) = NEEDS[case.need], _holder(guard)
    gate, of = "", "0 and 1"
    if case.need == "condition":  # torch.where takes a torch.bool alone
        gate = ", or, where one of them leaves x as it is, x + on * (branch(x) - x)"
        of = "torch.bool (for on, of 0 and 1)"
    return (
        f"{instead}{gate}, with {held} in a tensor{buffer} of {of}: the line {does}, which needs a Python value, "
        "and each combination of values has a graph of its own."
    )


def _choice(guard: Guard, case: Case) -> str:
    """Of a value that no tensor can hold: a name, an object, keys."""
    name, again = guard.subject, len(case.guards) > 1
    if name.startswith(KEYS_OF):
        return keys(guard, case)
    if "." in name and again:
        return (
            f"Where {name} takes these values by turns, and there are no more than somebody named (adapters, modes), "
            "let the limit hold as many versions, knowingly, each compiled once; or hand what it chooses among to the "
            f"function as one stacked tensor, and the choice as an index in a tensor: {_EACH}"
        )
    if "." in name:
        return f"Set {name} before the first call, and keep it, unless it is meant to change: {_EACH}"
    keep = "Choose outside" if again else f"Keep {name} constant, or choose outside"
    return (
        f"{keep} the compiled function by {name}, and pass what it stands for, as a tensor; what is only handed "
        f"through, leave out of the call: {_EACH}"
    )


def _number(guard: Guard, case: Case, values: Sequence[str]) -> str:
    """Of a number: a step, a seed, a rate, a size."""
    name, (held, buffer) = _read_in(guard.subject), _holder(guard)
    if case.indexed:
        return _index(guard, case)
    if case.function:
        how = f"with {name} in a tensor{buffer}"
        if "drop" in case.function.lower():
            how = f"as a mask with a rate that a tensor holds ({_DROPPED})"
        return (
            f"Write what {case.function}() computes {how}, or let it take few values: {case.function}() is given a "
            f"Python number, which no tensor can stand for, so that {_EACH}"
        )
    if case.objects > 1 and case.need:
        return (
            f"Give the objects of the class one {name.rpartition('.')[2]}, or few; or let the limit hold a version for "
            "each of them, which then serves it for good."
        )
    if held != name and not case.need:
        where = buffer or f", torch.tensor({held}),"
        return (
            f"Make one tensor of {held} outside the compiled function{where} and compute with that: each number in "
            f"a list is a constant of the graph, also where the function makes a tensor of the list"
            f"{_otherwise(guard, case, values)}"
        )
    # a variable can be a size, and that a module holds it is all that makes a constant of this one
    if _OF_MODULES in guard.hint and case.need in ("", "size") and _can_vary(case):
        tensor = f"Keep {name} in a tensor{buffer}, where the code only computes with it; or "
        if case.need:  # a size is a variable only as long as nothing asks for the number that it is
            tensor = (
                f"{NEEDS[case.need][0]}, with {held} in a tensor{buffer}; or, where nothing computes a Python number "
                "of that size (math.log(x.shape[1]), the classes of one_hot(), a loop), which is a constant again, "
            )
        return (
            f"{tensor}pass {name} as an argument of the call, where it is a variable from its first change on, or set "
            f"{_OF_MODULES}: PyTorch makes constants of a module's whole numbers, whatever is dynamic, and {_EACH}"
        )
    if not is_argument(guard) and case.need:
        instead, does = NEEDS[case.need]
        return (
            f"{instead}, with {held} in a tensor{buffer}; or let it take few values: the line {does}, which needs a "
            f"number, and {_EACH}"
        )
    if not is_argument(guard):
        shared = " (all objects of the class then share one graph)" * (case.objects > 1)
        return (
            f"Keep {name} in a tensor{buffer} instead of a Python number, where the code only computes with it"
            f"{shared}{_otherwise(guard, case, values)}"
        )
    if case.need == "loop":  # to trace a loop makes a constant of the number of its turns, whatever is dynamic
        instead, does = NEEDS[case.need]
        return (
            f"Compile what one turn computes, a function of its own, and leave the loop around it uncompiled; or "
            f"{instead[:1].lower()}{instead[1:]}, with {held} in a tensor; or let it take few values: the line {does}, "
            f"and {_EACH}"
        )
    if case.specialized or case.need == "place" or (case.dynamic == "True" and _can_vary(case)):
        if case.need:
            instead, does = NEEDS[case.need]
            return (
                f"{instead}, with {held} in a tensor; or let it take few values: the code {does}, which needs a "
                f"number, and {_EACH}"
            )
        return (
            f"The code needs the number (an index, a loop, a slice, a condition), so that each value of {name} has a "
            "graph of its own: use few values, or write it with tensors of one size and a mask."
        )
    tensor = f"Pass {name} as a tensor (torch.tensor({name})) instead of a Python number, where the code only computes"
    if case.dynamic == "False":
        return f"{tensor} with it, or compile without dynamic=False."
    if case.backend in FIXED_SHAPES:
        return f"{tensor} with it{_kept(case)}."
    varies = f"ompile with dynamic=True, which makes {name} a variable of the graph from the first call"
    if case.need:
        return f"C{varies}: the line {NEEDS[case.need][1]}, which needs a number."
    return f"{tensor} with it; or c{varies}, and all sizes as well."


def _index(guard: Guard, case: Case) -> str:
    """Of a number that the line indexes with: a Python list takes no tensor as an index, and a tensor does."""
    name, (held, buffer), lists = guard.subject, _holder(guard), enumerated(case.indexed, len(case.indexed))
    first, each = case.indexed[0], "each of them" if len(case.indexed) > 1 else "it"
    given = f"pass {name}" if is_argument(guard) else f"keep {held}"
    return (
        f"Make one tensor of {lists}{', each,' * (len(case.indexed) > 1)} once, outside the compiled function and the "
        f"loop that calls it (torch.tensor({first}), or torch.stack() of tensors), {given} as a tensor of one element"
        f"{buffer}, and take {first}.index_select(0, {name}): the line indexes {each} with {name}, and a list is "
        f"indexed by a Python number alone, so that {_EACH} What else computes with {name} takes that tensor, too: "
        f"torch.sqrt() in place of math.sqrt(), {name}.expand() of torch.full(), torch.where() of a condition."
    )


def _can_vary(case: Case) -> bool:
    """Whether anything can be a variable of the graph."""
    return case.dynamic != "False" and case.backend not in FIXED_SHAPES


def _kept(case: Case) -> str:
    """What changed once may have been set too late; what changes again is meant to."""
    return "" if len(case.guards) > 1 else "; else keep it constant"


def _otherwise(guard: Guard, case: Case, values: Iterable[str]) -> str:
    """How else a number that lies in an object becomes a variable of the graph, and what it is until then."""
    if case.backend in FIXED_SHAPES:
        return f"{_kept(case)}: {_EACH}"
    if case.dynamic == "False":
        return f"; or compile without dynamic=False, which makes constants of all numbers: {_EACH}"
    whole = all(re.fullmatch(r"-?\d+", value) for value in values)
    if whole and "G['" in guard.text:
        return f"{_kept(case)}: of whole numbers that a global name holds, {_EACH}"
    if whole and (case.specialized or case.dynamic == "True"):
        return f"{_kept(case)}: {_EACH}"
    if case.specialized or case.dynamic == "True":
        return (
            ". A float is a variable, unless torch._dynamo.config.specialize_float is set, or an operator is given it "
            f"that takes a Python number (write that one with tensors): here {_EACH}"
        )
    return (
        "; or compile with dynamic=True, which makes it a variable of the graph from the first call, and all sizes as "
        "well."
    )


# -- what is passed


def keys(guard: Guard, case: Case) -> str:
    """Of a dict whose keys changed."""
    held = filled(guard).removesuffix("._modules")
    if _OF_WHICH_MODULES.search(guard.text):
        return _modules(held, case.guards or (guard,))
    if not held.isidentifier():
        return (
            f"Let {held} have all its keys before the first call, with zeros where one has no value yet: each set of "
            "keys has a graph of its own."
        )
    return (
        f"Hand over {held} with the same keys in each call, zeros where one has no value, and a mask of those that "
        "have one, and choose with torch.where: each set of keys has a graph of its own."
    )


def _modules(held: str, guards: Sequence[Guard]) -> str:
    """Of what holds other modules than before, a ModuleList that grows by stages, say."""
    if len(guards) > 1 and all(one.old and one.new.startswith(one.old.rstrip("}.")) for one in guards):  # keys
        return (
            f"Compile what is new in {held} alone, the module that was added, and compute what the earlier ones give "
            "once for each stage, outside the compiled function and under torch.no_grad(), where they train no more. "
            "Where they do, compile each by itself, which share the versions of their class, and leave the loop over "
            f"them uncompiled: {held} grows, and each number of modules in it has a graph of its own, of all of them."
        )
    return (
        f"Let {held} have all its modules before the first call, and multiply what one gives by a number in a tensor, "
        "0 where it is to take no part: each set of modules has a graph of its own."
    )


def dtype(guard: Guard, case: Case) -> str:
    """Of an input of another dtype."""
    name = guard.subject or "the value"
    convert = f": {name}.to(torch.{guard.old})" if guard.old else ""
    if case.wide:
        return (
            f"Convert {case.wide} once, where it is made: {case.wide}.to(torch.{guard.old}). It is {guard.new} in each "
            f"call, and so is what {case.widens} computes of it, which comes back. To convert {name} before each call "
            f"would leave the function computing in {guard.new}; where that is meant, begin with all of them in it."
        )
    return f"Convert {name} to one dtype before the call{convert}."


def length(guard: Guard, case: Case) -> str:
    """Of a list, or a dict, that has another number of entries."""
    name = guard.subject or "the value"
    lengths = [(int(one.old), int(one.new)) for one in case.guards if one.old.isdigit() and one.new.isdigit()]
    is_kept = "." in name or "G['" in guard.text  # a list that is passed is another each time
    if is_kept and len(lengths) > 1 and all(old < new for old, new in lengths):
        return (
            f"Let {name} grow outside the compiled function, where that only adds to it: return what is added, and add "
            f"it after the call. {_READ_TOO.format(name=name)}"
        )
    return f"Keep {name} at one length, or stack it into one tensor (padded, with a mask) before the call."
