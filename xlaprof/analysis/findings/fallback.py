"""fallback: the host takes part in an operation that should be the device's alone.

There are two sorts. An operation without a lowering runs on the CPU, its inputs and outputs are copied there and back:
its cost is all of that time, the compiling of its inputs too. An operation whose result's size depends on values (a
selection by a mask, ``nonzero``, ``unique``) cannot be recorded before the host has read that size; PyTorch/XLA runs
these on the CPU, too. It costs as much as a read (:mod:`xlaprof.analysis.evidence.reads`) and the graph that it needs.

Fallbacks only during the program's set-up are no finding.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from xlaprof.analysis.evidence.counted import Key, Matching
from xlaprof.analysis.evidence.dynamic_size_ops import INSTEAD as INSTEAD_OF_DYNAMIC_SIZES
from xlaprof.analysis.evidence.dynamic_size_ops import described
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.reads import Reads, by_line
from xlaprof.analysis.fold.tallies import CompileRecord, FallbackTally
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.places import named
from xlaprof.analysis.principles import FELT
from xlaprof.analysis.sums import grouped, merged
from xlaprof.analysis.whatif import replay
from xlaprof.events import Fallback
from xlaprof.text.quantities import duration, plural, size_text, times

from .transfer import how_often

_EIGEN = (
    "Use torch.linalg.eigh if the matrix is symmetric, or matrix powers if the largest eigenvalue is enough; where it "
    "is solve(B, A) of symmetric ones, B positive, take L = torch.linalg.cholesky(B) and eigh of L^-1 A L^-T"
)
_RAGGED = "Pad to one length (to_padded_tensor) before the step"
_BINS = "Find the bins with torch.bucketize and count them with torch.zeros(n).index_add_"
#: What to write instead, by operation.
INSTEAD = {
    **INSTEAD_OF_DYNAMIC_SIZES,
    **dict.fromkeys(("aten::linalg_eig", "aten::linalg_eigvals", "aten::_linalg_eigvals"), _EIGEN),
    "aten::linalg_lstsq": (
        "Solve the normal equations (torch.linalg.solve_ex(A.mT @ A, A.mT @ b)), or use torch.linalg.qr"
    ),
    "aten::linalg_ldl_factor_ex": (
        "Use torch.linalg.cholesky_ex if the matrix is positive definite, else torch.linalg.lu"
    ),
    **dict.fromkeys(("aten::histc", "aten::_histogramdd_bin_edges", "aten::_histogramdd_from_bin_cts"), _BINS),
    "aten::kthvalue": "Use torch.topk or torch.sort and take the element",
    "aten::mode": "Count into a tensor over a known range (torch.zeros(n).index_add_), and take the argmax",
    "aten::randperm": "Draw the order on the host with the next batch, or sort random keys (torch.rand(n).argsort())",
    "aten::multinomial": "Draw with the Gumbel trick: (logits + gumbel noise).argmax(-1)",
    **dict.fromkeys(("aten::_nested_tensor_from_mask", "aten::_nested_from_padded"), _RAGGED),
    "aten::_ctc_loss": "Compute the loss in log space with torch.logaddexp over a fixed number of frames",
    "aten::grid_sampler_3d": "Gather the neighbours with index tensors computed on the device",
}

_BACKWARD = re.compile(r"backward\(|grad\(")
_MASKED = (
    "tags = tags.masked_fill(~mask, -100)  # instead of logits[mask], tags[mask]\n"
    "loss = F.cross_entropy(logits.flatten(0, -2), tags.flatten(), ignore_index=-100)"
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and operation."""
    yield from _on_the_cpu(facts)
    selections = [reads for reads in by_line(facts, sized=True) if reads.is_habit(facts)]
    back = _put_back(facts, {reads.place.at for reads in selections})
    most = max(selections, key=lambda reads: reads.count, default=None)
    for reads in selections:
        yield _dynamic_size(facts, reads, back if reads is most else {})


def _on_the_cpu(facts: Facts) -> Iterator[Finding]:
    def line(key: Key) -> tuple[object, ...]:
        place = facts.place(key[0])
        return place.at, facts.text(key[1]), 0 if place.line else key[0]

    for keys in grouped(facts.run.fallbacks, line).values():
        place, name = facts.place(keys[0][0]), facts.text(keys[0][1])
        tally = merged(FallbackTally, map(facts.run.fallbacks.__getitem__, keys))
        if tally.count < 2 and not tally.in_steps:
            continue
        if facts.named_steps and not tally.in_steps and tally.dur / 1e9 < FELT * facts.total_s:
            continue
        yield _finding(facts, place, name, tally, keys)


def _finding(facts: Facts, place: Place, name: str, tally: FallbackTally, keys: list[Key]) -> Finding:
    cost = tally.dur / 1e9
    reads = f", with {plural(tally.reads, 'transfer')}" if tally.reads else ""
    rhythm = facts.often(tally.rhythm)
    often = f" ({rhythm})" if rhythm and tally.count > 1 else ""
    compiled = f", besides {duration(tally.compiled / 1e9)} compiling its inputs" if tally.compiled else ""
    waited = max(0, tally.dur - tally.compiled) / 1e9
    apart = _apart(facts, {stack for stack, _ in keys})
    computed = max(0, tally.dur - tally.wait - tally.down - tally.up - tally.compiled)
    return facts.finding(
        "fallback",
        place,
        operation=name,
        count=tally.count,
        counted=Matching(Fallback, ("stack", "op"), frozenset(keys), digest="fallbacks"),
        cost_s=cost,
        cut=replay.together([replay.fallbacks(stack for stack, _ in keys), replay.compiles(apart, recorded=True)]),
        cause=(
            f"{described(name)} has no lowering, so it ran on the CPU {times(tally.count)}{often}{reads}: "
            f"{duration(waited)} in which the device waited for the host{compiled}."
        ),
        advice=_advice(name),
        evidence=(
            f"{duration(waited / tally.count)} each, longest {duration(tally.most / 1e9)}"
            f"{', with compiling' * bool(compiled)}",
            f"{duration(tally.wait / 1e9)} waiting for the device to compute the inputs, "
            f"{duration(tally.down / 1e9)} copying {size_text(tally.bytes)} to the host, "
            f"{duration(tally.up / 1e9)} copying {size_text(tally.up_bytes)} back, "
            f"{duration(computed / 1e9)} on the CPU",
        ),
        rhythm=rhythm,
        in_steps=tally.rhythm.steps,
    )


def _dynamic_size(facts: Facts, reads: Reads, back: dict[Place, str]) -> Finding:
    tally, name = reads.tally, reads.op
    apart = _apart(facts, reads.stacks)
    compile_s = sum(record.dur for record in apart) / 1e9
    own = f", and {duration(compile_s)} go into compiling {plural(len(apart), 'graph')} of its own" if apart else ""
    return facts.finding(
        "fallback",
        reads.place,
        operation=name,
        count=reads.count,
        counted=reads.counted,
        cost_s=reads.cost_s + compile_s,
        cut=replay.together([reads.cut, replay.compiles(apart, recorded=True)]),
        cause=(
            f"Values decide the size of the result of {described(name)}, so it cannot stay on the device: "
            f"{how_often(facts, reads)} the host reads the size and stops until it is computed, {reads.how_long()}"
            f"{own}.{_and_back(back)}"
        ),
        advice=_advice(name),
        evidence=(reads.waited(), f"longest {duration(tally.most / 1e9)}"),
        confidence="high" if tally.known else "medium",
        rhythm=facts.often(tally.rhythm),
        in_steps=tally.rhythm.steps,
        also=tuple(back),
        remedy=_MASKED if "cross_entropy" in reads.place.code else "",
    )


def _and_back(back: dict[Place, str]) -> str:
    """The sentence on the lines that put back what was selected."""
    return "".join(
        f" {'Its gradient' if _BACKWARD.search(place.code) else 'What was selected'} is put back by the same mask at "
        f"{named(place)} ({op}): here the device does that alone, but PyTorch/XLA runs aten::nonzero on the CPU once "
        "more."
        for place, op in back.items()
    )


def _apart(facts: Facts, stacks: Container[int]) -> list[CompileRecord]:
    """The graphs that only compute what the host needs there."""
    return [record for record in facts.run.compiles if record.trigger == "read" and record.stack in stacks]


def _put_back(facts: Facts, lines: set[tuple[str, int]]) -> dict[Place, str]:
    """Other lines that use a mask whose size was read, mostly where gradients go back through a selection.

    By each its operator. PyTorch/XLA reads the size once more there; here the device does that alone.
    """
    found: dict[Place, str] = {}
    for stack, op in facts.run.selections:
        place = facts.place(stack)
        if place.line and place.at not in lines:
            lines.add(place.at)
            found[place] = facts.text(op)
    return found


def _advice(name: str) -> str:
    base = name.partition(".")[0]
    instead = INSTEAD.get(name) or INSTEAD.get(base)
    if instead:
        return f"{instead}."
    return f"Replace {base.removeprefix('aten::')} by operations that run on the device, or move it out of the loop."


KIND = Kind(find, unit_of=("no_fallback",), blamed_for=("max_idle",))
