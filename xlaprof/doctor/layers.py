"""The layers, what was seen of the program under each, and what follows: data and pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

from xlaprof.text.quantities import duration, plural, size_text

Kind = Literal["crash", "memory", "time", "numbers"]
Number = Literal["right", "wrong", "unknown"]


class Layer(msgspec.Struct, frozen=True):
    """A rung of the ladder: a backend, what it adds to the one before, and what to do where that fails."""

    name: str
    backend: str  # "": the program runs without torch.compile
    adds: str
    remedy: str


LAYERS = (
    Layer("eager", "", "nothing: torch.compile is off", "Mend the program first."),
    Layer(
        'backend="eager"',
        "eager",
        "Dynamo, which captures graphs and guards them",
        "Take fullgraph=True away, or keep the function that cannot be captured out with torch.compiler.disable.",
    ),
    Layer(
        'backend="aot_eager"',
        "aot_eager",
        "AOTAutograd, which traces the backward pass and makes writes in place functional",
        "Write the function at fault without in-place writes or aliased outputs, or disable it.",
    ),
    Layer(
        'backend="aot_eager_decomp_partition"',
        "aot_eager_decomp_partition",
        "inductor's decompositions, and the partitioner that decides what the backward pass computes anew",
        "Take its decomposition out of torch._inductor.decomposition.decompositions, and report the reproducer.",
    ),
    Layer(
        'backend="inductor"',
        "inductor",
        "inductor, which fuses operations and generates code for them",
        'Report the reproducer; until it is mended, compile this function with backend="aot_eager", or disable it.',
    ),
    Layer(
        'backend="openxla"',
        "openxla",
        "XLA in inductor's place",
        "Report the graph at fault.",
    ),
)


class Failure(msgspec.Struct, frozen=True):
    """Something that went wrong with one graph, or with the program."""

    kind: Kind
    text: str
    place: str = ""  # file:line of the user's code
    code: str = ""
    graph: str = ""  # the folder with it, "" where it could not be written down
    whole: bool = False  # seen of the program, not of a graph
    error: float | None = None  # relative; of numbers; None: it cannot be measured


class Seen(msgspec.Struct, frozen=True):
    """What was seen of the program under one layer. Times in seconds, memory in bytes."""

    layer: str
    took: float
    calls: tuple[float, ...] = ()  # of compiled functions, outermost ones, in order
    compiling: float = 0.0
    graphs: int = 0
    breaks: int = 0
    checked: int = 0  # graphs whose numbers were compared
    unchecked: tuple[str, ...] = ()  # why others were not
    peak: int = 0
    failures: tuple[Failure, ...] = ()
    numbers: Number = "unknown"
    output: str = ""  # the file with what the program printed

    @property
    def steady(self) -> float:
        """Seconds of a call once all is compiled: the median of the last half. NaN where there was none."""
        late = self.calls[len(self.calls) // 2 :] if len(self.calls) > 1 else ()
        return median(late) if late else math.nan


class Verdict(msgspec.Struct, frozen=True):
    """What the ladder says: ``layer`` is the first at which ``what`` happens."""

    what: Literal["crash", "memory", "time", "numbers", "slow"]
    layer: str
    text: str
    remedy: str


class Reproducer(msgspec.Struct, frozen=True):
    """``file`` runs alone and fails as the program does; ``fails`` says whether it was seen to."""

    file: str
    operations: int
    fails: Literal["yes", "no", "not in time"]
    remark: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """What the command prints, and what ``--json`` holds."""

    program: list[str]
    folder: str
    layers: list[Seen]
    verdicts: list[Verdict]
    reproducer: Reproducer | None
    unsteady: bool  # it returns something else each time, without torch.compile too


SLOW = 1.1  # times PyTorch's own time, from which a compiled call is slow


ENOUGH = 20  # calls, to judge their time


def verdicts(seen: Sequence[Seen]) -> list[Verdict]:
    """The first layer at which each kind of trouble shows, in the order of the ladder."""
    found: dict[str, Verdict] = {}
    for one in seen[1:]:
        layer = layer_of(one.layer)
        for failure in one.failures:
            if failure.kind not in found:
                where = f" at {failure.place}" if failure.place else ""
                found[failure.kind] = Verdict(
                    failure.kind,
                    one.layer,
                    f"{_SAYS[failure.kind]} under {one.layer}{where}: {failure.text}.",
                    layer.remedy,
                )
    slow = _slow(seen)
    return [*found.values(), *([slow] if slow else [])]


_SAYS = {
    "crash": "The program fails",
    "memory": "The program runs out of memory",
    "time": "The program does not end in time",
    "numbers": "The numbers are wrong",
}


def _slow(seen: Sequence[Seen]) -> Verdict | None:
    """Is the last layer that ran to its end slower than no compilation, and from which layer on?"""
    whole = [one for one in seen if len(one.calls) >= ENOUGH and not any(f.kind != "numbers" for f in one.failures)]
    if len(whole) < 2 or whole[0].layer != LAYERS[0].name:
        return None
    plain = whole[0].steady
    judged = next((one for one in reversed(whole) if one.layer == _INDUCTOR), None)
    if judged is None or judged.steady <= SLOW * plain:
        return None
    half = plain + (judged.steady - plain) / 2
    first = next(one for one in whole[1:] if one.steady > SLOW * plain and one.steady >= half)
    layer = layer_of(first.layer)
    why = f"{plural(first.breaks, 'graph break')} and {plural(first.graphs, 'graph')}" if first.graphs else "no graph"
    return Verdict(
        "slow",
        first.layer,
        f"A compiled call takes {duration(judged.steady)}, {duration(plain)} without torch.compile. "
        f"Most of it is there with {first.layer}, which adds {layer.adds} ({why}).",
        "xlaprof run says which line costs what. Where a call computes little, compile more of the program in one.",
    )


_INDUCTOR = 'backend="inductor"'


def layer_of(name: str) -> Layer:
    return next(layer for layer in LAYERS if layer.name == name)


def results(one: Seen) -> str:
    """A layer's result in a few words."""
    kinds = [failure.kind for failure in one.failures]
    words = {"crash": "fails", "memory": "out of memory", "time": "no end", "numbers": "wrong numbers"}
    if kinds:
        return words[kinds[0]]
    return "same numbers" if one.numbers == "right" else "runs"


def figures(one: Seen) -> tuple[str, str, str, str]:
    """Time in all, compiling, a steady call, peak memory, as text."""
    return (
        duration(one.took),
        duration(one.compiling) if one.graphs else "-",
        "-" if math.isnan(one.steady) else duration(one.steady),
        size_text(one.peak) if one.peak else "-",
    )


def differs_as_a_whole(one: Seen) -> bool:
    """Did calls return something else than without torch.compile, though no graph is at fault?"""
    return any(failure.kind == "numbers" and failure.whole for failure in one.failures)


def without_whole(one: Seen) -> Seen:
    """What is left where the program returns something else each time."""
    left = tuple(one for one in one.failures if one.kind != "numbers" or not one.whole)
    return msgspec.structs.replace(one, failures=left)


def is_of_memory(text: str) -> bool:
    """Does this error say that memory ran out?"""
    return any(sign in text for sign in ("MemoryError", "OutOfMemory", "out of memory", "can't allocate memory"))
