"""What a program can do about a line that is a library's: an option of that library, where one decides.

A finding under a library's line says whose it is, and whose loop repeats it. ``library_options.toml`` has the options
of libraries that many programs are driven by, under the names that they document. Where none of them decides, and the
line would have to be written otherwise, there is nothing that the program can do: no finding, but a part of an account.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from xlaprof.analysis.model import Place
from xlaprof.analysis.places import package
from xlaprof.text.strings import package_path
from xlaprof.vocabulary import STANDARD, Vocabulary


class _Option(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An option that decides whether, or how often, a library's function does what a finding is about."""

    kinds: tuple[str, ...]
    advice: str
    library: str = ""
    function: str = ""
    says: str = ""
    remedy: str = ""


@cache
def _options() -> tuple[_Option, ...]:
    text = (files(__package__) / "library_options.toml").read_text("utf-8")
    return tuple(msgspec.toml.decode(text, type=dict[str, list[_Option]])["option"])


#: for which a report that is made again and again does not search once more
_STACKS = 4_096
#: kinds whose own advice is to write a line otherwise, which is not the user's to write here
OF_THE_LINE = frozenset({"transfer", "fallback", "excess_barriers", "missing_barrier", "growing_graph"})


class Said(NamedTuple):
    """Sentences of a finding, and code that does what it advises."""

    cause: str
    advice: str
    remedy: str = ""
    is_option: bool = False  # of a library


def advise(
    kind: str,
    place: Place,
    cause: str,
    advice: str,
    remedy: str = "",
    words: Vocabulary = STANDARD,
    largest: int = 0,
    barriers: bool = True,
    others: Iterable[Place] = (),
) -> Said:
    """What to say of a finding of this kind at ``place``: ``remedy``, a way to write the line, is the user's lines'.

    ``largest``: the size that padding goes to. ``barriers``: whether the program's device has any. ``others``: lines
    that do the same, for which a function that the line calls may have further options.
    """
    if not place.library:
        return Said(cause, advice, remedy)
    # a forward's own loop is over layers: what repeats it is further out
    loop = next((line for line in reversed(place.library) if line.loop and not line.func.endswith("forward")), None)
    # the user's own loop may as well be what repeats it; of operations of JAX's a function of the user's is told of
    if loop is not None and not place.loop and kind != "op_by_op":
        cause += f" The loop is {whose(loop)} own ({package_path(loop.file)}:{loop.loop})."
    option = _option(kind, place, "\n".join((cause, advice, *(line.code for line in place.library))), barriers)
    if option is not None:
        remedy = option.remedy if barriers else re.sub(r"\n *\{barrier_code\}", "", option.remedy)
        remedy = remedy.format(barrier_code=words.barrier_code)
        named = _named(option, place, others)
        text = option.advice.format(words=words, advice=advice, largest=f"={largest}" if largest else "", **named)
        return Said(cause, text, remedy, is_option=True)
    return Said(cause, advice)


@lru_cache(_STACKS)
def option_for(kind: str, place: Place) -> str:
    """The advice of the option that decides about what libraries do at ``place``; "": none is known."""
    if not place.library:
        return ""
    option = _option(kind, place, "\n".join(line.code for line in place.library), barriers=False)
    return option.advice if option is not None else ""


def _option(kind: str, place: Place, said: str, barriers: bool) -> _Option | None:
    lines = [(package(line), _text(line)) for line in place.library]
    for option in _options():
        if kind in option.kinds and re.search(option.says, said) and (barriers or "barrier" not in option.advice):
            for name, text in lines:
                found = re.fullmatch(option.library or ".*", name) and re.search(option.function, text)
                if found and _is_called(place, found.groupdict().get("called", "")):
                    return option
    return None


def _is_called(place: Place, function: str) -> bool:
    """Whether the user's line calls a library's function by its name: its arguments are then the user's."""
    return not function or bool(re.search(rf"\b{re.escape(function)}\(", place.code))


def _named(option: _Option, place: Place, others: Iterable[Place]) -> dict[str, str]:
    """What the groups of the option's pattern found in the lines below that line of the user's: names of arguments."""
    found: dict[str, dict[str, None]] = {}
    for one in (place, *(other for other in others if (other.at, other.func) == (place.at, place.func))):
        for line in one.library:
            match = re.search(option.function, _text(line))
            for group, name in match.groupdict().items() if match else ():
                found.setdefault(group, {})[name] = None
    return {
        group: " and ".join(f"{name}=" if group == "given" else name for name in sorted(names))
        for group, names in found.items()
    }


def _text(line: Place) -> str:
    return f"{package_path(line.file)}: {line.func}: {line.code}"


#: what a library's jit does beside JAX's, where an option spares it
AROUND = "own Python around each call, for the most part"


def around_calls(place: Place) -> str:
    """Whose Python runs around each call of a jitted function, and what spares it; "" where none is known."""
    advice = option_for("dispatch", place)
    return f"{whose(place.acting)} {AROUND} ({advice})" if advice else ""


def owned(place: Place) -> str:
    """The sentence on a line that no known option changes, where what is compiled for it takes much of a run."""
    return (
        f"The line is {whose(place.acting)} own: what it is given, and how often it is called, is the program's to "
        "choose."
    )


def whose(line: Place) -> str:
    library = package(line)
    return f"{library}'" if library.endswith("s") else f"{library}'s"
