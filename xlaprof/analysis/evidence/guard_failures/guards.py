"""Guards of ``torch.compile`` that fail: one table of the changes, why each recompiles, and the advice."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from xlaprof.analysis.evidence.guard_failures import advised
from xlaprof.analysis.evidence.guard_failures.case import (
    FIXED_SHAPES,
    NUMBER,
    Case,
    dims_of,
    filled,
    is_argument,
    size_of,
)
from xlaprof.events import Guard

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
    "shape": _Kind("shape", _CHANGED, advised.shape),
    "size bound": _Kind(
        "shape", "The shape of {name} changed {went}, and a version holds only while {text}", advised.bound
    ),
    "stride": _Kind(
        "memory layout (stride)",
        "The memory layout of {name} changed: its stride went {went}",
        advised.layout,
    ),
    "rank": _Kind(
        "shape (rank)", _CHANGED, "Give {name} the same number of dimensions at each call: unsqueeze it before."
    ),
    "dtype": _Kind("dtype", _CHANGED, advised.dtype),
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
        "Call it with tensors that agree in requires_grad: {name}.requires_grad_() where it has none yet, as what a "
        "loop begins with that hands on its results; {name}.detach() where no gradient is wanted.",
    ),
    "value": _Kind("Python value", _VALUE, advised.value),
    "length": _Kind(
        "Python value (length)", "The length of {name}, which is part of the graph, changed {went}", advised.length
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
    "keys": _Kind("Python value (keys)", _ATTRIBUTE[0], advised.keys),
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
    said = text.format(**names) if isinstance(text, str) else text(guard, case)
    if limit and (case.objects > 1 or "knowingly" in said):
        said += f" That limit is torch._dynamo.config.{limit}."
    elif limit:
        said += f" Raising torch._dynamo.config.{limit} only helps where the number of versions is bounded."
        if guard.kind == "value" and case.further:
            said += (
                " PyTorch names the first guard that fails in each version: what else changes from call to call, as "
                f"{case.further} did, shows once this is mended."
            )
    return said


def remedy(guard: Guard, case: Case) -> str:
    """Code that does what the advice says; empty where the sentence is enough."""
    # a tensor ends no loop, and is no index of a list
    if case.backend in FIXED_SHAPES or case.specialized or case.need == "loop" or case.indexed:
        return ""
    alike = [one for one in case.guards if one.subject == guard.subject]
    sizes = (size_of(shape, dim) for one in alike for dim in dims_of(alike) for shape in (one.old, one.new))
    if guard.kind == "shape" and "force_parameter" not in guard.hint and not {0, 1} & set(sizes):
        name = advised.variable(guard.subject) if case.handed_over else "x"
        marks = [advised.mark(name, dims_of(alike)), *advised.marks(case.others)]
        return "\n".join([f"{one}  # before the first call" for one in marks] + [f"y = compiled({name})"])
    if guard.kind == "value" and re.fullmatch(NUMBER, guard.new) and is_argument(guard):
        return f"compiled(..., {guard.subject}=torch.tensor({guard.new}))"
    return ""
