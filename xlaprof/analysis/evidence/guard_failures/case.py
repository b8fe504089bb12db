"""A finding's guards, what they are on, and how the function is compiled that they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.principles import NAMED
from xlaprof.analysis.shapes import sizes
from xlaprof.events import Guard

#: of a guard on a dict's keys: what its subject begins with
KEYS_OF = "the keys of "
#: a Python number as a guard tells it
NUMBER = r"-?[\d.]+(?:e[+-]?\d+)?"
#: backends that compile a program for every size, whatever Dynamo makes dynamic
FIXED_SHAPES = ("openxla", "openxla_eval", "torchxla_trace_once", "tpu")


def size_of(shape: str, dim: int) -> int | None:
    found = sizes(shape) or []
    return int(found[dim]) if dim < len(found) and found[dim].isdigit() else None


def sizes_of_dim(guard: Guard) -> tuple[str, str]:
    """The old and the new size of the dimension that changed; where none did, the guard's old and new value."""
    old, new = sizes(guard.old), sizes(guard.new)
    if guard.dim < 0 or new is None or guard.dim >= len(new):
        return guard.old, guard.new
    return (old[guard.dim] if old is not None and len(old) == len(new) else ""), new[guard.dim]


def dims_of(guards: Iterable[Guard]) -> list[int]:
    """The dimensions whose sizes changed: PyTorch names the first one of a tensor, and the shapes tell the others."""
    found = set[int]()
    for guard in guards:
        found.add(max(guard.dim, 0))
        old, new = sizes(guard.old) or [], sizes(guard.new) or []
        pairs = enumerate(zip(old, new, strict=True)) if len(old) == len(new) else ()
        found |= {dim for dim, (a, b) in pairs if a != b and a.isdigit() and b.isdigit()}
    return sorted(found)


class Case(NamedTuple):
    """A finding's guards, and how the function is compiled."""

    guards: Sequence[Guard]  # all that failed for one cause
    backend: str
    dynamic: str = ""  # torch.compile's argument
    specialized: bool = False  # PyTorch tried to make it a variable, and the code made it a constant all the same
    function: str = ""  # of PyTorch's, whose argument it is on the line, which computes nothing else with it
    others: Sequence[Guard] = ()  # on other inputs whose size changed with it
    objects: int = 0  # of the guards that failed for another object of the class than the one compiled for
    need: str = ""  # what the line needs a Python value for, a key of NEEDS
    indexed: Sequence[str] = ()  # the lists, or other containers, that the line indexes with the number
    handed_over: bool = True  # the call names the input; else it passes an expression
    asked: str = ""  # the line that made a constant of a size that was a variable
    gradless: bool = False  # of a mode: no version has a backward graph
    sized: str = ""  # the input whose sizes failed with it: the function fills what the guard is on, by size
    wide: str = ""  # of a wider dtype: another input, which has it in each call
    widens: str = ""  # the line that computes of that and of what is narrower
    further: str = ""  # something else that failed with one of the versions


def named(guard: Guard) -> str:
    """What a guard is on: of a list's elements, or a dict's keys, the list or the dict; of one of no known kind, as a
    bound, the first name in its text."""
    found = re.search(r"[^\W\d][\w.]*", guard.text) if not guard.subject else None
    return found[0] if found else container(guard) or guard.subject


def container(guard: Guard) -> str:
    """``prices`` of a guard on the value ``prices[2]``, or on the keys of that; "": it is on no part of anything."""
    if guard.kind == "keys":
        return filled(guard)
    found = re.fullmatch(r"([^ ]+?)(\[(-?\d+|\.\.\.)\])+", guard.subject) if guard.kind == "value" else None
    return found[1] if found else ""


def told(guard: Guard, others: Iterable[Guard]) -> Guard:
    """The guard to speak of, where ``others`` failed too: for several parts of one list or dict ``prices[...]``."""
    alike = (one for one in (guard, *others) if one.kind == guard.kind and named(one) == named(guard))
    parts = list(dict.fromkeys(one.subject for one in alike if container(one)))
    if len(parts) < 2:
        return guard
    keys = [one.removeprefix(named(guard)).strip("[]") for one in parts] if guard.kind == "keys" else ["..."]
    return replace(guard, subject=f"{named(guard)}[{', '.join([*keys[:NAMED], *['...'] * (len(keys) > NAMED)])}]")


def filled(guard: Guard) -> str:
    """The dict or list whose entries, or number of them, a guard is on; "": of nothing of these."""
    if guard.kind in ("length", "keys"):
        return re.sub(r"\[[^][]*\]$", "", guard.subject) if guard.kind == "keys" else guard.subject
    return guard.subject.removeprefix(KEYS_OF) if guard.subject.startswith(KEYS_OF) else ""


def is_argument(guard: Guard) -> bool:
    """Whether the value is passed by the caller, and not found in an object, a global, a closure."""
    return guard.subject.isidentifier() and guard.text.startswith((f"{guard.subject} ", "kwargs["))
