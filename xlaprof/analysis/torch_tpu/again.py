"""Lines for whose sake TorchTPU compiles its batches again: from what to what, and what that cost.

TorchTPU's log says why a batch was cut, and not why its program was not in the cache. That comes from the graph of the
most similar batch before, and where the two first differ.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Known, values
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.model import Finding, FromTo, Moment
from xlaprof.analysis.principles import HABIT
from xlaprof.analysis.sums import grouped
from xlaprof.events import TorchTpuBatch
from xlaprof.text.quantities import duration, times

#: :attr:`Finding.operation` of these findings
TORCH_TPU = "TorchTPU batch"


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line whose operation is another again and again, so that a program is made for it."""
    for (at, name), several in grouped(facts.run.torch_tpu.changed, lambda one: _key(facts, one)).items():
        if len(several) >= HABIT:
            yield _finding(facts, name if not at[1] else "", several)


def _key(facts: Facts, one: TorchTpuBatch) -> tuple[tuple[str, int], str]:
    at = facts.place(one.line).at
    return at, "" if at[1] else facts.text(one.name)


def _finding(facts: Facts, name: str, several: list[TorchTpuBatch]) -> Finding:
    first = several[0]
    went = [f"{one.old} -> {one.new}" for one in several]
    where = "this line's operation" if not name else f"an operation of the batch {name}"
    return facts.finding(
        "recompile",
        facts.place(first.line),
        operation=TORCH_TPU,
        discriminator=name,
        count=len(several),
        counted=Known(tuple(Moment(one.t, one.dur, detail=said) for one, said in zip(several, went, strict=True))),
        cost_s=sum(one.dur for one in several) / 1e9,
        cause=(
            f"TorchTPU compiled a batch of operations again {times(len(several))}, because {where} differs from the "
            f"batch before: {first.old} became {first.new}."
        ),
        advice=(
            "Give it the same sizes and numbers each time: pad what varies to one size or to a few, and keep a number "
            "that changes in a tensor on the device; or compile the function, torch.compile takes sizes in bounds."
        ),
        change=FromTo(what="operation", old=first.old, new=first.new),
        values=values((one.old, one.new) for one in several),
        evidence=listed([f"{duration(one.dur / 1e9)}, {said}" for one, said in zip(several, went, strict=True)]),
        confidence="medium",
    )
