"""Advice on graphs that are compiled again is taken: the program has one graph, or as many as the advice says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.advice.diffusing import samples
from tests.advice.lists_and_evaluations import chooses, evaluates, grids, probes, resets, sampler, tallies
from tests.advice.numbers_and_sums import (
    blank,
    blank_at,
    expanded,
    filled,
    gated,
    learned_turns,
    sums,
    threshold,
    threshold_at,
    watches,
)
from tests.advice.recompiled_programs import (
    DEVICE,
    WARM_UP,
    accumulates,
    averages,
    both,
    cast,
    crops,
    cut,
    epochs,
    evicts,
    gathered,
    grows,
    held_at,
    holds,
    indexed,
    logs,
    looked_up,
    looked_up_at,
    marks,
    on_device,
    padded,
    pairs,
    penalized,
    picks,
    put,
    put_at,
    repeated,
    rolled,
    rows,
    scaled,
    scaled_by_one_element,
    scaled_by_zero_dim,
    selected,
    skips,
    sliced,
    smoothed,
    steps,
    sums_behind,
    switched,
    thaws,
    trained,
    turns,
    two_weights,
    under_adam,
    write_at,
    write_slice,
    writes,
)
from tests.advice.taken import Case, findings, observe, take
from xlaprof.events import Compile, TransferFromDevice

CASES = [
    Case(
        "evaluates",
        "recompile",
        evaluates(False),
        "at the end of",
        evaluates(True),
        also=("every turn of the loop at line ",),
        counts=(),
    ),
    Case(
        "evaluates over a grid",
        "recompile",
        grids(outer=False, inner=False),
        " to compile: end each of these turns with ",
        grids(outer=True, inner=True),
        also=("turns of the loop at line ", "every turn of the loop at line "),
        counts=(),
    ),
    Case(
        "probes",
        "recompile",
        probes(removed=False),
        "Register it once, before the loop; or undo it",
        probes(removed=True),
    ),
    Case(
        "resets",
        "recompile",
        resets(apart=False),
        " before the if, in every step, and once more after what it does",
        resets(apart=True),
        counts=(),  # the small graph of the sum's beginning, instead of a step's
    ),
    Case("samples", "recompile", samples(own=False), "Sample with a scheduler of its own", samples(own=True)),
    Case("chooses", "recompile", chooses(True), "Keep the rows in one tensor on the device", chooses(False)),
    Case(
        "dtype",
        "recompile",
        steps(on_device, [torch.ones(4, 6, dtype=d) for d in (torch.float32, torch.int32) * 6]),
        "Convert the input to one dtype before the step",
        steps(on_device, [torch.ones(4, 6, dtype=d).to(torch.float32) for d in (torch.float32, torch.int32) * 6]),
    ),
    Case(
        "last batch",
        "recompile",
        steps(on_device, rows(8, 8, 8, 8, 8, 5)),
        "Pad the last batch to ",
        steps(on_device, (padded(x, 0, 8) for x in rows(8, 8, 8, 8, 8, 5))),
    ),
    Case(
        "last batch dropped",
        "recompile",
        steps(on_device, rows(8, 8, 8, 8, 8, 5)),
        "Pad the last batch to ",
        steps(on_device, rows(8, 8, 8, 8, 8)),
        also=("leave it out",),
    ),
    Case(
        "two widths",
        "recompile",
        steps(on_device, [torch.ones(4, w) for w in (5, 5, 5, 5, 9, 5, 5)]),
        " in every step.",
        steps(on_device, [padded(torch.ones(4, w), 1, 9) for w in (5, 5, 5, 5, 9, 5, 5)]),
    ),
    Case(
        "many widths",
        "recompile",
        steps(on_device, [torch.ones(4, w) for w in (5, 9, 7, 12, 6, 10, 5, 9, 8, 11)]),
        "or mask positions instead of",
        steps(on_device, [padded(torch.ones(4, w), 1, 12) for w in (5, 9, 7, 12, 6, 10, 5, 9, 8, 11)]),
    ),
    Case(
        "several sizes",
        "recompile",
        steps(both, pairs((5, 9), (7, 9), (5, 12), (6, 10), (7, 12), (5, 10))),
        "Pad all of them to sizes of one fixed set",
        steps(
            both,
            [(padded(a, 1, 7), padded(b, 1, 12)) for a, b in pairs((5, 9), (7, 9), (5, 12), (6, 10), (7, 12), (5, 10))],
        ),
    ),
    Case(
        "rank",
        "recompile",
        steps(on_device, [torch.ones(4, 6), torch.ones(4, 6), torch.ones(6), torch.ones(4, 6), torch.ones(6)]),
        "Give this input the same number of dimensions in every step",
        steps(
            on_device, [torch.ones(4, 6), torch.ones(4, 6), padded(torch.ones(6).unsqueeze(0), 0, 4), torch.ones(4, 6)]
        ),
    ),
    Case(
        "a cache that grows",
        "recompile",
        grows(static=False),
        "allocate it once at its largest size",
        grows(static=True),
    ),
    Case(
        "an argument",
        "recompile",
        steps(picks, (2, 3, 4) * 4),
        "Take the largest size that can come each time",
        steps(picks, (4,) * 12),
    ),
    Case(
        "a number that is special",
        "recompile",
        steps(scaled, WARM_UP),
        "keep it off exactly 0, 1 and -1",
        steps(scaled, [min(max(w, 1e-6), 0.999999) for w in WARM_UP]),
    ),
    Case(
        "a number as a tensor",
        "recompile",
        steps(scaled, WARM_UP),
        "Pass the number as a 1-element tensor on the device",
        lambda: steps(scaled, [torch.tensor([w], device=DEVICE) for w in WARM_UP])(),
    ),
    Case(
        "a learning rate",
        "recompile",
        trained(lrs=WARM_UP),
        "keep it off exactly 0, 1 and -1",
        trained(lrs=[min(max(lr, 1e-6), 0.999999) for lr in WARM_UP]),
        strict=True,
    ),
    Case(
        "a tensor of no dimensions",
        "recompile",
        steps(scaled_by_zero_dim, WARM_UP),
        "as a tensor of one element: one of no dimensions",
        steps(scaled_by_one_element, WARM_UP),
    ),
    Case(
        "a filled number",
        "recompile",
        steps(filled, WARM_UP),
        "Expand a tensor of one element from the host to the size that is filled",
        steps(expanded, WARM_UP),
        strict=True,
    ),
    Case(
        "a threshold",
        "recompile",
        steps(threshold, range(2, 14)),
        "; or, where only the k-th value counts, as for a threshold, sort",
        steps(threshold_at, range(2, 14)),
    ),
    Case(
        "two numbers that meet",
        "recompile",
        steps(two_weights, [(0.25 + n / 16, 0.75 - n / 16) for n in range(12)]),
        "Pass the two numbers as 1-element tensors on the device",
        lambda: steps(
            two_weights,
            [
                (torch.tensor([0.25 + n / 16], device=DEVICE), torch.tensor([0.75 - n / 16], device=DEVICE))
                for n in range(12)
            ],
        )(),
    ),
    Case("a slice", "recompile", crops(sliced), " positions that a tensor holds", crops(selected)),
    Case("a slice written", "recompile", writes(write_slice), " positions that a tensor holds", writes(write_at)),
    Case(
        "a slice filled",
        "recompile",
        writes(blank),
        " positions that a tensor holds",
        writes(blank_at),
        also=("Write with index_fill_ at",),
    ),
    Case("an index", "recompile", crops(indexed), " a position that a tensor of one element holds", crops(held_at)),
    Case("a roll", "recompile", crops(rolled), "or gather at positions that a tensor holds", crops(gathered)),
    Case(
        "an index that is read",
        "recompile",
        crops(looked_up),
        " a position that a tensor of one element holds",
        crops(looked_up_at),
        also=("Read with index_select",),
    ),
    Case(
        "an index written", "recompile", writes(put), " a position that a tensor of one element holds", writes(put_at)
    ),
    Case(
        "positions",
        "recompile",
        steps(marks, [torch.arange(n) for n in (5, 9, 7, 12, 6, 10, 5, 9, 8, 11)]),
        " It holds positions: repeat the last one",
        steps(marks, [repeated(torch.arange(n), 12) for n in (5, 9, 7, 12, 6, 10, 5, 9, 8, 11)]),
    ),
    Case("a mode", "recompile", switched(back=False), "Call model.train() after the evaluation", switched(back=True)),
    Case(
        "autocast",
        "recompile",
        cast(lambda n: n % 2 == 0),
        "Run every step under the same autocast",
        cast(lambda n: True),
    ),
    Case(
        "a barrier",
        "recompile",
        cut(lambda n: n % 4 == 3),
        "Remove this barrier, or let every step have it",
        cut(lambda n: False),
    ),
    Case(
        "a barrier in every step",
        "recompile",
        cut(lambda n: n % 4 == 3),
        "Remove this barrier, or let every step have it",
        cut(lambda n: True),
    ),
    Case(
        "sums before a loop",
        "recompile",
        epochs(barrier=False),
        " directly before ",
        epochs(barrier=True),
        (),
        strict=True,
    ),
    Case(
        "sums behind the barrier of a turn",
        "recompile",
        sums_behind(barrier=False),
        "as the first thing of each turn",
        sums_behind(barrier=True),
        (),
        strict=True,
    ),
    Case(
        "elements that a loop's head takes out",
        "recompile",
        sampler(taken_out=False),
        "Take the elements out before the loop, as a list",
        sampler(taken_out=True),
        (),
        strict=True,
    ),
    Case(
        "sums after a barrier",
        "recompile",
        logs(barrier=False),
        " after it: what it records is a small graph of its own then, and the steps have one graph",
        logs(barrier=True),
        (),
    ),
    Case(
        "a norm after the barrier",
        "recompile",
        watches(before=False),
        "; or compute it before the barrier, so that every graph holds it",
        watches(before=True),
    ),
    Case(
        "a sum that begins as None",
        "recompile",
        sums(zeros=False),
        "Begin with what the other turns find there instead of None",
        sums(zeros=True),
        (),
    ),
    Case(
        "accumulation",
        "recompile",
        accumulates(barrier_each=True),
        " so that every graph holds the same work, once per optimizer step",
        accumulates(barrier_each=False),
    ),
    Case(
        "frozen layers",
        "recompile",
        thaws(always=False),
        "Let the same parameters require gradients in all steps",
        thaws(always=True),
    ),
    Case(
        "passes that are skipped",
        "recompile",
        skips(masked=False),
        "Do the work of every pass and mask its result",
        skips(masked=True),
    ),
    Case(
        "layers that are left out under Adam",
        "recompile",
        under_adam(masked=False),
        "Do the work of every pass and mask its result",
        under_adam(masked=True),
    ),
    Case(
        "passes",
        "recompile",
        turns((3, 3, 5, 4, 3, 5, 4, 2)),
        "Let the loop have the same number of passes before each barrier",
        turns((5,) * 8),
    ),
    Case(
        "a barrier in each pass",
        "recompile",
        turns((3, 3, 5, 4, 3, 5, 4, 2)),
        ", or none, a barrier at its end serves, too.",
        turns((3, 3, 5, 4, 3, 5, 4, 2), each=True),
    ),
    Case(
        "passes under a gradient",
        "recompile",
        learned_turns((3, 3, 5, 4, 3, 5, 4, 2), masked=False),
        " each time and mask those that are too many: x = ",
        learned_turns((3, 3, 5, 4, 3, 5, 4, 2), masked=True),
        also=("(5 so far)",),
    ),
    Case(
        "a factor of 0 or 1",
        "recompile",
        gated([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0], as_tensor=False),
        "Pass the number as a 1-element tensor on the device, ",
        gated([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0], as_tensor=True),
    ),
    Case(
        "a pass more each time",
        "recompile",
        turns([n // 3 for n in range(3, 18)]),
        "End every pass with a barrier, so that one graph",
        turns([n // 3 for n in range(3, 18)], each=True),
    ),
    Case(
        "a number that decides",
        "recompile",
        smoothed(lambda n: 0.1 * (n % 3 > 0)),
        " one value in all steps, or values for which",
        smoothed(lambda n: 0.1),
    ),
    Case(
        "a small number instead of 0",
        "recompile",
        smoothed(lambda n: 0.1 * (n % 3 > 0)),
        " one value in all steps, or values for which",
        smoothed(lambda n: 0.1 if n % 3 else 1e-6),
    ),
    Case("a branch", "recompile", penalized(always=False), "Take the same path in every step", penalized(always=True)),
    Case(
        "results that are held",
        "recompile",
        holds(),
        "keep the value after the barrier, when it is computed, or copy it",
        holds(after="computed"),
    ),
    Case(
        "results that are copied",
        "recompile",
        holds(),
        "keep the value after the barrier, when it is computed, or copy it",
        holds(after="copied"),
    ),
    Case(
        "the same results at every barrier",
        "recompile",
        holds(),
        "or keep the same ones alive at every barrier",
        holds(after="same"),
    ),
    Case("few programs", "recompile", evicts(limit=2), "Raise the limit of the compile cache", evicts(limit=1024)),
    Case("fewer graphs", "recompile", evicts(limit=2), "or let fewer different graphs arise", evicts(limit=2, heads=2)),
    Case(
        "a list that grows",
        "recompile",
        averages(buffer=False),
        "Keep one tensor of fixed length on the device and write into it",
        averages(buffer=True),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_graph_is_compiled_no_more(case: Case, tmp_path: Path) -> None:
    take(case, tmp_path)


def test_a_barrier_in_the_loop_of_an_evaluation_makes_small_graphs_and_one_behind_it_does_not(tmp_path: Path) -> None:
    largest = []
    for name, inner in (("behind", False), ("inside", True)):
        events = observe(grids(outer=True, inner=inner), tmp_path / f"{name}.log").events
        largest.append(max(event.ops for event in events if isinstance(event, Compile)))
    behind, inside = largest
    assert behind > 2 * inside


def test_elements_that_are_read_to_index_are_one_finding_with_all_that_is_compiled_for_them(tmp_path: Path) -> None:
    """Each element is taken out in a graph, read, and a constant of the graph that follows: no path was changed."""
    case = Case(
        "elements that are an index each",
        "transfer",
        tallies(at_once=False),
        "Bring the whole tensor to the host once, before the loop over its elements",
        tallies(at_once=True),
        (Compile, TransferFromDevice),
    )
    taken = take(case, tmp_path)
    (found,) = findings(taken.before.events)
    assert {one.kind for one in found.parts} == {"recompile"}
    assert not any("nother path" in one.cause for one in found.parts)
    assert taken.left == ()
