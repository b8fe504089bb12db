"""Guards of ``torch.compile`` that fail: one table of the changes, why each recompiles, and the advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.principles import HABIT, NAMED
from xlaprof.analysis.shapes import are_chosen, sizes
from xlaprof.events import Guard

_NUMBER = r"-?[\d.]+(?:e[+-]?\d+)?"
#: backends that compile a program for every size, whatever Dynamo makes dynamic
_FIXED_SHAPES = ("openxla", "openxla_eval", "torchxla_trace_once", "tpu")


def _size(shape: str, dim: int) -> int | None:
    found = sizes(shape) or []
    return int(found[dim]) if dim < len(found) and found[dim].isdigit() else None


def sizes_of_dim(guard: Guard) -> tuple[str, str]:
    """The old and the new size of the dimension that changed; where none did, the guard's old and new value."""
    old, new = sizes(guard.old), sizes(guard.new)
    if guard.dim < 0 or new is None or guard.dim >= len(new):
        return guard.old, guard.new
    return (old[guard.dim] if old is not None and len(old) == len(new) else ""), new[guard.dim]


def _variable(name: str) -> str:
    return name if re.fullmatch(r"[\w.]+(\[[\w'\"]+\][\w.]*)*", name) else "x"


class Case(NamedTuple):
    """A finding's guards, and how the function is compiled."""

    guards: Sequence[Guard]  # all that failed for one cause
    backend: str
    dynamic: str = ""  # torch.compile's argument
    specialized: bool = False  # PyTorch tried to make it a variable, and the code made it a constant all the same
    function: str = ""  # of PyTorch's, whose argument it is on the line, which computes nothing else with it
    others: tuple[str, ...] = ()  # inputs whose size changed with it
    objects: int = 0  # of the guards that failed for another object of the class than the one compiled for
    need: str = ""  # what the line needs an object's number for, a key of NEEDS
    handed_over: bool = True  # the call names the input; else it passes an expression
    asked: str = ""  # the line that made a constant of a size that was a variable
    gradless: bool = False  # of a mode: no version has a backward graph
    sized: str = ""  # the input whose sizes failed with it: the function fills what the guard is on, by size


#: what to do where a line needs a number as such, and what the line does with it
NEEDS = {
    "condition": ("Compute both branches in each call and choose with torch.where", "branches on it"),
    "loop": ("Run the largest number of passes in each call and drop with torch.where what is beyond", "loops by it"),
    "size": (
        "Take the largest size in each call, and mask with torch.where what is beyond where no mask hides that yet",
        "makes a size of it",
    ),
}

_DROPPED = "x * (torch.rand_like(x) < keep) / keep, where the module trains"
_KEYS_OF = "the keys of "
#: of a list or a dict that is filled, and whose length stays a part of the graph where it is read
_READ_TOO = (
    "Where it reads {name}, too (torch.stack), let a tensor of fixed size (a buffer) hold what is read, rolled at "
    "each call or with a row for each key, and a count in a tensor: else its length stays a part of the graph."
)
# -- advice that depends on more than the kind


def _advise_shape(guard: Guard, case: Case) -> str:
    name, dim = guard.subject or "the input", max(guard.dim, 0)
    if "force_parameter_static_shapes" in guard.hint:
        return (
            f"{name} is a parameter, whose sizes are constants of the graph: keep its size, or set "
            "torch._dynamo.config.force_parameter_static_shapes = False."
        )
    if re.search(r"past_key_values|cache", name):
        return "Generate with a cache of fixed size (cache_implementation='static'), which does not grow by each token."
    before, now = _size(guard.old, dim), _size(guard.new, dim)
    taken = {one for each in case.guards for one in (_size(each.old, dim), _size(each.new, dim)) if one is not None}
    is_last_batch = len(taken) <= 2 and dim == 0 and before is not None and now is not None and now < before
    if is_last_batch:
        pad = f"pad the last batch to {before} or pass drop_last=True to the DataLoader"
    elif 1 < len(taken) <= HABIT and are_chosen(map(str, taken)):
        pad = f"keep these {len(taken)} sizes, each of which is compiled once"
    else:
        pad = f"pad dimension {dim} of {name} to a few sizes"
    if case.backend in _FIXED_SHAPES:
        return f"{pad[:1].upper()}{pad[1:]}: this backend compiles a program for every size."
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
    mark = f"torch._dynamo.maybe_mark_dynamic({_variable(name)}, {dim})"
    if not case.handed_over:
        mark = f"torch._dynamo.maybe_mark_dynamic(x, {dim}) on the tensor x that is passed as {name}"
    if case.others:
        mark += f" and the same for {' and '.join(case.others)}"
    if taken & {0, 1}:
        others = f", and mark the dimension dynamic: {mark}" if len(taken) > 2 else ""
        return _apart(guard, min(taken), others)
    how = "with dynamic=True"
    if case.dynamic == "False":
        how = "without dynamic=False, which makes one graph for the first size and one for all others"
    return f"Mark the dimension dynamic before the first call, {mark}, or compile {how}; or {pad}."


def _apart(guard: Guard, size: int, others: str = "") -> str:
    name, dim = guard.subject or "the input", max(guard.dim, 0)
    return (
        f"torch.compile compiles a size of 0 or 1 apart, also of a dynamic dimension: pad dimension {dim} of {name} to "
        f"2 or more where it is {size}{others}; or call torch._dynamo.decorators.mark_unbacked({_variable(name)}, "
        f"{dim}) before."
    )


def _advise_bound(guard: Guard, case: Case) -> str:
    name, dim = guard.subject or "the input", max(guard.dim, 0)
    size = _size(guard.new, dim)
    if size in (0, 1):
        return _apart(guard, size)
    pad = f"pad dimension {dim} of {name} so that it stays on one side of that bound"
    return f"The code asks about this size: decide outside the compiled function, or {pad}."


def _advise_value(guard: Guard, case: Case) -> str:
    name = guard.subject
    if re.search(r"\blr\b|param_groups", name):
        return (
            "Make the learning rate a tensor (optimizer = SGD(..., lr=torch.tensor(0.1))): "
            "its value is then no constant of the graph."
        )
    each = "each of its values has a graph of its own."
    kept = next((kept for one in case.guards if (kept := filled(one)) and name.startswith(f"{kept}[")), "")
    if kept:
        return (
            f"Let {kept} be filled outside the compiled function, where that only fills it: return what it is filled "
            f"with, and put it there after the call. Here each new entry, and each number in one, is a part of the "
            f"graph. {_READ_TOO.format(name=kept)}"
        )
    values = [value for one in case.guards for value in (one.old, one.new) if value]
    if not values or not all(re.fullmatch(_NUMBER, value) for value in values):
        if "." in name and len(set(values)) > HABIT:
            return (
                f"Where {name} takes these values by turns, and there are no more than somebody named (adapters, "
                "modes), let the limit hold as many versions, knowingly, each compiled once; or hand what it chooses "
                f"among to the function as one stacked tensor, and the choice as an index in a tensor: {each} Else "
                "set it before the first call, and keep it."
            )
        if "." in name:
            return f"Set {name} before the first call, and keep it: {each}"
        return (
            f"Keep {name} constant, or choose outside the compiled function and pass what it stands for, as a tensor; "
            f"what is only handed through, leave out of the call: {each}"
        )
    if case.function:
        dropped = "drop" in case.function.lower()
        mask = f", or write the mask with a rate that a tensor holds ({_DROPPED})" * dropped
        return (
            f"Keep {name} constant, or let it take few values{mask}: {case.function}() is given a Python number, which "
            "no tensor can stand for, so that each of its values has a graph of its own."
        )
    if case.objects > 1 and case.need:
        return (
            f"Give the objects of the class one {name.rpartition('.')[2]}, or few; or let the limit hold a version for "
            "each of them, which then serves it for good."
        )
    numbers = _container(guard)
    buffer = " (a buffer, if it is a module's)" if "." in (numbers or name) else ""
    if numbers and not case.need:
        where = buffer or f", torch.tensor({numbers}),"
        return (
            f"Make one tensor of {numbers} outside the compiled function{where} and compute with that: each number in "
            "a list is a constant of the graph, also where the function makes a tensor of the list; else keep them "
            f"constant: {each}"
        )
    if not _is_argument(guard) and case.need:
        instead, does = NEEDS[case.need]
        return (
            f"{instead}, with {name} in a tensor{buffer}; or let it take few values: the line {does}, which needs a "
            f"number, and {each}"
        )
    if not _is_argument(guard):
        shared = " (all objects of the class then share one graph)" * (case.objects > 1)
        return (
            f"Keep {name} in a tensor{buffer} instead of a Python number, where the code only computes with it"
            f"{shared}; else keep it constant: {each}"
        )
    if case.specialized:
        return (
            f"The code needs the number (an index, a loop, a slice, a condition), so that each value of {name} has a "
            "graph of its own: use few values, or write it with tensors of one size and a mask."
        )
    tensor = f"ass {name} as a tensor (torch.tensor({name})) instead of a Python number, where the code only computes"
    if case.dynamic == "False":
        return f"P{tensor} with it, or compile without dynamic=False; else keep it constant."
    if case.backend in _FIXED_SHAPES:
        return f"P{tensor} with it; else keep it constant."
    return f"Compile with dynamic=True, which makes {name} a variable of the graph from the first call; or p{tensor}."


def named(guard: Guard) -> str:
    """What a guard is on: of a list's elements, or a dict's keys, the list or the dict; of one of no known kind, as a
    bound, the first name in its text."""
    found = re.search(r"[^\W\d][\w.]*", guard.text) if not guard.subject else None
    return found[0] if found else _container(guard) or guard.subject


def _container(guard: Guard) -> str:
    """``prices`` of a guard on the value ``prices[2]``, or on the keys of that; "": it is on no part of anything."""
    if guard.kind == "keys":
        return filled(guard)
    found = re.fullmatch(r"([^ ]+?)(\[(-?\d+|\.\.\.)\])+", guard.subject) if guard.kind == "value" else None
    return found[1] if found else ""


def told(guard: Guard, others: Iterable[Guard]) -> Guard:
    """The guard to speak of, where ``others`` failed too: for several parts of one list or dict ``prices[...]``."""
    alike = (one for one in (guard, *others) if one.kind == guard.kind and named(one) == named(guard))
    parts = list(dict.fromkeys(one.subject for one in alike if _container(one)))
    if len(parts) < 2:
        return guard
    keys = [one.removeprefix(named(guard)).strip("[]") for one in parts] if guard.kind == "keys" else ["..."]
    return replace(guard, subject=f"{named(guard)}[{', '.join([*keys[:NAMED], *['...'] * (len(keys) > NAMED)])}]")


def filled(guard: Guard) -> str:
    """The dict or list whose entries, or number of them, a guard is on; "": of nothing of these."""
    if guard.kind in ("length", "keys"):
        return re.sub(r"\[[^][]*\]$", "", guard.subject) if guard.kind == "keys" else guard.subject
    return guard.subject.removeprefix(_KEYS_OF) if guard.subject.startswith(_KEYS_OF) else ""


def _is_argument(guard: Guard) -> bool:
    """Whether the value is passed by the caller, and not found in an object, a global, a closure."""
    return guard.subject.isidentifier() and guard.text.startswith((f"{guard.subject} ", "kwargs["))


def _advise_keys(guard: Guard, case: Case) -> str:
    held = filled(guard)
    if not held.isidentifier():
        return _ATTRIBUTE[1].format(name=guard.subject)
    return (
        f"Hand over {held} with the same keys in each call, zeros where one has no value, and a mask of those that "
        "have one, and choose with torch.where: each set of keys has a graph of its own."
    )


def _advise_dtype(guard: Guard, case: Case) -> str:
    name = guard.subject or "the value"
    convert = f": {name}.to(torch.{guard.old})" if guard.old else ""
    return f"Convert {name} to one dtype before the call{convert}."


def _advise_length(guard: Guard, case: Case) -> str:
    name = guard.subject or "the value"
    lengths = [(int(one.old), int(one.new)) for one in case.guards if one.old.isdigit() and one.new.isdigit()]
    is_kept = "." in name or "G['" in guard.text  # a list that is passed is another each time
    if is_kept and len(lengths) > 1 and all(old < new for old, new in lengths):
        return (
            f"Let {name} grow outside the compiled function, where that only adds to it: return what is added, and add "
            f"it after the call. {_READ_TOO.format(name=name)}"
        )
    return f"Keep {name} at one length, or stack it into one tensor (padded, with a mask) before the call."


# -- the table


class _Kind(NamedTuple):
    """One kind of guard. Texts have {kind}, {name}, {old}, {new}, {went} ("from 2 to 3"), {more} and {text}."""

    what: str  # what changed, in short
    cause: str
    advice: str | Callable[[Guard, Case], str]


_ATTRIBUTE = ("{name} was {old} and now is {new}{more}", "Set {name} before the first call, and keep it.")
_VALUE = "The Python value of {name}, a constant of the graph, changed {went}"
_CHANGED = "The {kind} of {name} changed {went}"
_KEEP = "Keep what the guard asks for the same at each call: each case has a graph of its own."
#: the caller passes another tensor, or is in another mode: reported at the call, and others where the guard was made
_BY_CALLER = (
    "shape", "size bound", "stride", "rank", "dtype", "device", "dispatch", "requires_grad", "training", "mode",
    "aliasing", "backend", "freed",
)  # fmt: skip
_KINDS = {
    "shape": _Kind("shape", _CHANGED, _advise_shape),
    "size bound": _Kind(
        "shape", "The shape of {name} changed {went}, and a version holds only while {text}", _advise_bound
    ),
    "stride": _Kind(
        "memory layout (stride)",
        "The memory layout of {name} changed: its stride went {went}",
        "Call {name}.contiguous() before the call, and the same for what else the call is given that was made with it "
        "or like it: PyTorch names the first tensor whose memory layout differs, and each must be the same each time. "
        "What a library makes, a forward hook of the module that hands it over can return contiguous.",
    ),
    "rank": _Kind(
        "shape (rank)", _CHANGED, "Give {name} the same number of dimensions at each call: unsqueeze it before."
    ),
    "dtype": _Kind("dtype", _CHANGED, _advise_dtype),
    "device": _Kind("device", _CHANGED, "Move {name} to one device before the call."),
    "dispatch": _Kind(
        "kind of tensor (dispatch keys)",
        "{name} is another kind of tensor than before, it has other dispatch keys (another device, a subclass, "
        "inference mode)",
        "Call it with the same kind of tensor, on the same device, in the same mode: torch.no_grad() throughout "
        "instead of now and then inference_mode().",
    ),
    "requires_grad": _Kind(
        "requires_grad of an input",
        "requires_grad of {name} changed {went}",
        "Call it with tensors that agree in requires_grad: {name}.detach() where no gradient is wanted.",
    ),
    "value": _Kind("Python value", _VALUE, _advise_value),
    "length": _Kind(
        "Python value (length)", "The length of {name}, which is part of the graph, changed {went}", _advise_length
    ),
    "type": _Kind(
        "Python type", "The Python type of {name} changed {went}", "Pass {name} with the same type at each call."
    ),
    "anew": _Kind(
        "class, which is made anew",
        "The class {old} ({name}) is defined in a function, {maker}(), and each call of that makes it anew: to "
        "torch.compile it is another class each time",
        "Define {old} once, at the top of its module, and hand what {maker}() fills in to its __init__; all its "
        "objects then share what was compiled.",
    ),
    "filled": _Kind(
        "what a function fills",
        "{name} is filled while the function runs, by size of {sized}: an entry makes the size a constant of the "
        "graph, and the next one has the versions of before compiled again",
        "Make one tensor for the largest size of {sized} before the first call (a buffer, if {name} is a module's), "
        "and slice it in place of an entry for each size.",
    ),
    "object": _Kind(
        "Python object",
        "{name} is another object than it was compiled for: it changed {went}",
        "Pass the same {name} each time: create it once, outside the loop.",
    ),
    "keys": _Kind("Python value (keys)", _ATTRIBUTE[0], _advise_keys),
    "attribute": _Kind("attribute", *_ATTRIBUTE),
    "training": _Kind(
        "training mode",
        "The training mode of {name} changed {went}",
        "Leave {name} in one mode where the other is not needed: train() and eval() have a graph each.",
    ),
    "mode": _Kind(
        "mode of PyTorch",
        "The global state {name} changed {went}",
        "Call it under the same {name} each time: each has a graph of its own.",
    ),
    "gradless": _Kind(
        "mode of PyTorch",
        "The global state {name} changed {went}, though no version has a backward graph: nobody asks for a gradient",
        "Call it under torch.no_grad() each time, in a warm-up too: one version then serves all. Each thread has a "
        "mode of its own, and begins with gradients on: enter no_grad() within the function that a thread runs.",
    ),
    "aliasing": _Kind(
        "which inputs are the same tensor",
        "The inputs {name} are now the same tensor",
        "Pass different tensors ({name}): clone() one of them before the call.",
    ),
    "apart": _Kind(
        "which inputs are the same tensor",
        "The inputs {name} are different tensors now, and were one in an earlier call",
        "Pass different tensors ({name}) in each call, in a warm-up too: clone() one of them. A graph that was made "
        "for one tensor in two places serves no other call.",
    ),
    "backend": _Kind(
        "backend",
        "torch.compile was called again with another backend function",
        "Call torch.compile once, outside the loop, and with the same backend function each time.",
    ),
    "reset": _Kind(
        "reset",
        "torch._dynamo.reset() made PyTorch forget what it had compiled, and the same graphs came again",
        "Do without the reset, or call it once, before the loop: what is compiled also serves another object of the "
        "same class, as long as sizes and constants are the same.",
    ),
    "freed": _Kind(
        "object freed",
        "{name}, which the version was compiled for, has been freed",
        "Keep {name} alive as long as the compiled function is used, instead of making a new one.",
    ),
}
_OTHER = _Kind("guard", "A guard failed ({text}){more}", _KEEP)


def maker(guard: Guard) -> str:
    """The function that defines a class, and so makes it anew at each call; "": it is no guard on such a class."""
    found = re.search(r"([\w.]+)\.<locals>\.[\w.<>]+'>$", guard.text) if guard.kind == "type" else None
    return found[1].rpartition(".")[2] if found and guard.old == guard.new else ""


def _kind(guard: Guard, case: Case | None = None) -> _Kind:
    special = "anew" if maker(guard) else "filled" if case is not None and case.sized else guard.kind
    special = "gradless" if case is not None and case.gradless else special
    special = "apart" if (guard.kind, guard.new) == ("aliasing", "different tensors") else special
    return _KINDS.get(special, _OTHER)


def code(guard: Guard) -> str:
    """The guard as Dynamo writes it, with the program's names."""
    return re.sub(r"\b[GL]\['(\w+)'\]", r"\1", guard.text)


_READ = re.compile(r"(?P<tensor>[A-Za-z_][\w.]*(\[[^\[\]]*\])?)\.item\(\)")
_A_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")


def of_the_tensor(guard: Guard, call: str, advice: str) -> str:
    """``advice``, where the ``call`` reads the number that changes from a tensor: to pass that comes first."""
    read = _READ.search(call)
    if read is None or guard.kind != "value" or not _A_NUMBER.fullmatch(guard.new):
        return advice
    return f"Pass the tensor, {read['tensor']}, in place of {read[0]}, where what is called takes one. Else: {advice}"


def by_caller(guard: Guard) -> bool:
    """Whether the caller is to blame: the finding is then at the line of the call."""
    return guard.kind in _BY_CALLER


def what(guard: Guard) -> str:
    """What changed, in short: "shape of x"."""
    short = _kind(guard).what
    return f"{short} of {guard.subject}" if guard.subject else short


def cause(guard: Guard, changes: int, case: Case) -> str:
    """Why the function was compiled again: a clause. ``changes``: different ones of this cause."""
    more = f" (and {changes - 1} more such {'change' if changes == 2 else 'changes'})" if changes > 1 else ""
    if case.objects > 1 and guard.kind == "value":
        return (
            f"The Python value of {guard.subject}, a constant of the graph, is another in each object of the class "
            f"({guard.old}, {guard.new}{', ...' if changes > 1 else ''}), and all of them share the function's versions"
        )
    return _kind(guard, case).cause.format(
        kind=guard.kind,
        maker=maker(guard),
        sized=case.sized,
        name=(filled(guard) if case.sized else guard.subject) or "a value",
        old=guard.old,
        new=guard.new,
        went=f"from {guard.old} to {guard.new}{more}" if guard.old and guard.new else f"({code(guard)}){more}",
        more=more,
        text=code(guard) or "PyTorch did not say which",
    )


def advice(guard: Guard, case: Case, limit: str = "") -> str:
    """One sentence of advice; a second one where a limit of this name was hit."""
    text = _kind(guard, case).advice
    name = (filled(guard) if case.sized else guard.subject) or "the value"
    names = {"name": name, "old": guard.old, "maker": maker(guard), "sized": case.sized}
    advised = text.format(**names) if isinstance(text, str) else text(guard, case)
    if limit and (case.objects > 1 or "knowingly" in advised):
        advised += f" That limit is torch._dynamo.config.{limit}."
    elif limit:
        advised += f" Raising torch._dynamo.config.{limit} only helps where the number of versions is bounded."
        if guard.kind == "value":
            advised += (
                " PyTorch names the first guard that fails in each version: what else changes from call to call, as "
                "the length of a list that the function appends to, shows once this is mended."
            )
    return advised


def remedy(guard: Guard, case: Case) -> str:
    """Code that does what the advice says; empty where the sentence is enough."""
    if case.backend in _FIXED_SHAPES or case.specialized:
        return ""
    name, dim = _variable(guard.subject), max(guard.dim, 0)
    small = any(_size(shape, dim) in (0, 1) for one in case.guards for shape in (one.old, one.new))
    if guard.kind == "shape" and "force_parameter" not in guard.hint and not small:
        name = name if case.handed_over else "x"
        return f"torch._dynamo.maybe_mark_dynamic({name}, {dim})  # before the first call\ny = compiled({name})"
    if guard.kind == "value" and re.fullmatch(_NUMBER, guard.new) and _is_argument(guard):
        return f"compiled(..., {name}=torch.tensor({guard.new}))"
    return ""
