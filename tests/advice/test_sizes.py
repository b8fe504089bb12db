"""Advice on numbers that are part of a graph, and on what goes with a size, is taken: the graphs are counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace
from story import Story

import xlaprof
import xlaprof.runtime as xr
from tests.advice.recompiled_programs import DEVICE, padded, steps
from tests.advice.taken import Case, Program, findings, observe, take
from xlaprof.events import Change, Compile

NUMBERS = (2, 5, 3, 6, 4, 3, 6, 2, 5, 4)
MOST = max(NUMBERS)
MOST_KEPT = 9


def given(use: Callable[[Any, Any], Any], make: Callable[[int], Any] = lambda n: n) -> Program:
    """A table on the device, and a number for each step: as it is, or made something else on the host."""

    def program() -> None:
        table = (torch.arange(96.0).reshape(4, 24) % 7).to(DEVICE)
        xr.sync()
        for n in NUMBERS:
            out = use(table, make(n))
            xr.sync()
            del out

    return program


def held(n: int) -> Any:
    return torch.tensor([n]).to(DEVICE)


def positions(size: int = 24) -> Any:
    return torch.arange(size, device=DEVICE)


def ramp(start: Any) -> Any:
    return torch.arange(start, start + 8, device=DEVICE)


def flipped(table: Any, at: Any) -> Any:
    return table.flip([at % 2]).cumsum(1)


def either_way(table: Any, at: Any) -> Any:
    return torch.where(at % 2 == 0, table.flip([0]), table.flip([1])).cumsum(1)


def queued(ring: bool, *, apart: bool = False) -> Program:
    """The latest rows of all, 9 at most: put together anew, and cut at once or ``apart``; or written into a ring."""

    def program() -> None:
        queue = torch.zeros(1, 6).to(DEVICE)
        buffer = torch.zeros(9, 6, dtype=torch.float32, device=DEVICE)
        position = torch.tensor([1]).to(DEVICE)
        filled = torch.tensor([1]).to(DEVICE)
        for n in range(14):
            new = torch.full((1, 6), n / 3).to(DEVICE)
            if ring:
                buffer = buffer.index_copy(0, position, new)
                position = (position + 1) % 9
                filled = filled + 1
                out = torch.where((positions(9) < filled)[:, None], buffer, 0.0).square().sum()
            elif apart:
                joined = torch.cat([new, queue])
                queue = joined[:MOST_KEPT]
                out = queue.square().sum()
            else:
                queue = torch.cat([queue, new])[-9:]
                out = queue.square().sum()
            xr.sync()
            del out

    return program


def padded_left(width: int) -> Program:
    """Rows padded on the left: to the longest of a batch, or to one width."""

    def left_pad(lengths: Any) -> Any:
        longest = max(width, max(lengths))
        return torch.stack([F.pad(torch.arange(n), (longest - n, 0)) for n in lengths]).to(DEVICE)

    return steps(
        lambda lengths: (left_pad(lengths) % 5).cumsum(1).sum(), [(n, n - 2) for n in (7, 9, 12, 8, 11, 10, 9, 7)]
    )


def both_slices(table: Any, at: int) -> Any:
    left = table[:, at : at + 3]
    right = table.exp()[:, at : at + 3]
    return (left * right).sum()


def one_of_them(table: Any, at: int) -> Any:
    where = torch.arange(at, at + 3).to(DEVICE)
    left = table.index_select(1, where)
    right = table.exp()[:, at : at + 3]
    return (left * right).sum()


def both_selected(table: Any, at: int) -> Any:
    where = torch.arange(at, at + 3).to(DEVICE)
    return (table.index_select(1, where) * table.exp().index_select(1, where)).sum()


def unrolled(batch: Any) -> Any:
    x, count = batch
    x = x.to(DEVICE)
    state = torch.ones(4, 1, device=DEVICE)
    states = []
    for _ in range(count):
        state = (state * 0.5).tanh()
        states.append(state)
    return (torch.cat(states, 1) - x).square().mean()


def unrolled_and_masked(batch: Any) -> Any:
    x, count = batch
    x, real = padded(x, 1, MOST).to(DEVICE), held(count)
    state = torch.ones(4, 1, device=DEVICE)
    states = []
    for _ in range(MOST):
        state = (state * 0.5).tanh()
        states.append(state)
    wrong = (torch.cat(states, 1) - x).square()
    return torch.where(positions(MOST) < real, wrong, 0).sum() / (4 * real)


def weighted(batch: Any) -> Any:
    x, count = batch
    return (x.to(DEVICE) * torch.arange(count, device=DEVICE)).sum()


def weighted_and_masked(batch: Any) -> Any:
    x, count = batch
    return (padded(x, 1, MOST).to(DEVICE) * positions(MOST) * (positions(MOST) < held(count))).sum()


def batches() -> list[Any]:
    return [(torch.ones(4, n), n) for n in NUMBERS]


def best(x: Any) -> Any:
    x = x.to(DEVICE)
    return x.topk(2).values.sum()


def best_of_real(x: Any) -> Any:
    real = held(x.shape[0])
    x = padded(x, 0, MOST).to(DEVICE)
    return x.masked_fill(positions(MOST) >= real, float("-inf")).topk(2).values.sum()


def averaged(x: Any) -> Any:
    x = x.to(DEVICE)
    return x.softmax(0).square().mean()


def averaged_where_real(x: Any) -> Any:
    real = held(x.shape[0])
    x = padded(x, 0, MOST).to(DEVICE)
    is_real = positions(MOST) < real
    share = x.masked_fill(~is_real, float("-inf")).softmax(0)
    return (share.square() * is_real).sum() / real


def likelihood(x: Any) -> Any:
    x = x.to(DEVICE)
    gram = torch.exp(-(x[:, None] - x).square()) + torch.eye(x.shape[0], device=DEVICE)
    return torch.linalg.cholesky_ex(gram).L.diagonal().log().sum()


def likelihood_of_real(x: Any) -> Any:
    real = held(x.shape[0])
    x = padded(x, 0, MOST).to(DEVICE)
    is_real = positions(MOST) < real
    gram = torch.exp(-(x[:, None] - x).square()) + torch.eye(MOST, device=DEVICE)
    gram = torch.where(is_real[:, None] & is_real, gram, torch.eye(MOST, device=DEVICE))
    return torch.linalg.cholesky_ex(gram).L.diagonal().log().sum()


def passed_on(edges: Any) -> Any:
    nodes = torch.arange(15.0).reshape(5, 3).to(DEVICE)
    edges = edges.to(DEVICE)
    return torch.zeros(5, 3, device=DEVICE).index_add(0, edges[1], nodes.index_select(0, edges[0]))


def passed_on_by_weight(edges: Any) -> Any:
    nodes = torch.arange(15.0).reshape(5, 3).to(DEVICE)
    weight = ((torch.arange(MOST) < edges.shape[1]) * 1.0).to(DEVICE)
    edges = padded(edges, 1, MOST).to(DEVICE)
    messages = nodes.index_select(0, edges[0]) * weight[:, None]
    return torch.zeros(5, 3, device=DEVICE).index_add(0, edges[1], messages)


def graphs() -> list[Any]:
    return [torch.arange(2 * n).reshape(2, n) % 5 for n in NUMBERS]


def scores() -> list[Any]:
    return [-1 - torch.arange(float(n)) for n in NUMBERS]


LARGEST = "Take the largest size that can come each time"
CASES = [
    Case("a queue that is cut", "recompile", queued(False), ", until the slice", queued(True)),
    Case(
        "a queue that the next line cuts",
        "recompile",
        queued(False, apart=True),
        ", until the slice",
        queued(True),
        also=("keeps the newest MOST_KEPT of it", "modulo MOST_KEPT."),
    ),
    Case("rows padded on the left", "recompile", padded_left(0), "() chooses its width: ", padded_left(12)),
    Case(
        "an exponent",
        "recompile",
        given(lambda table, n: ((table + 1) ** (1 / n)).sum()),
        "Raise it to a power that a tensor of one element holds",
        given(lambda table, n: ((table + 1) ** n).sum(), lambda n: torch.tensor([1 / n]).to(DEVICE)),
    ),
    Case(
        "k of a top-k",
        "recompile",
        given(lambda table, n: table.topk(n).values.sum()),
        LARGEST,
        given(lambda table, n: torch.where(positions(MOST) < n, table.topk(MOST).values, 0).sum(), held),
        also=(f"({MOST} so far)",),
    ),
    Case(
        "end of a slice",
        "recompile",
        given(lambda table, n: table[:, :n].square().sum()),
        LARGEST,
        given(lambda table, n: torch.where(positions(MOST) < n, table[:, :MOST].square(), 0).sum(), held),
    ),
    Case(
        "end of a slice, of all of the dimension",
        "recompile",
        given(lambda table, n: table[:, :n].square().sum()),
        "Where no largest is known, take all of the dimension",
        given(lambda table, n: torch.where(positions(table.shape[1]) < n, table.square(), 0).sum(), held),
    ),
    Case(
        "classes",
        "recompile",
        given(lambda table, n: F.one_hot(table[0].long() % 2, n).sum()),
        LARGEST,
        given(lambda table, n: (F.one_hot(table[0].long() % 2, MOST) * (positions(MOST) < n)).sum(), held),
    ),
    Case(
        "repeats",
        "recompile",
        given(lambda table, n: table[0].repeat(n, 1).cumsum(0)),
        LARGEST,
        given(lambda table, n: (table[0].repeat(MOST, 1) * (positions(MOST) < n)[:, None]).cumsum(0), held),
    ),
    Case(
        "a range from the host",
        "recompile",
        given(lambda table, n: table.sum() * ramp(n).sum()),
        "Make the range on the host",
        given(lambda table, n: table.sum() * n.sum(), lambda n: torch.arange(n, n + 8).to(DEVICE)),
    ),
    Case(
        "a range and a number",
        "recompile",
        given(lambda table, n: table.sum() * ramp(n).sum()),
        "or add a tensor of one element to a range that begins at 0",
        given(lambda table, n: table.sum() * (ramp(0) + n).sum(), held),
    ),
    Case(
        "a diagonal",
        "recompile",
        given(lambda table, n: table.tril(n).sum()),
        "Compare positions with a tensor of one element",
        given(lambda table, n: torch.where(positions() - positions(4)[:, None] <= n, table, 0).sum(), held),
    ),
    Case(
        "a shape",
        "recompile",
        given(lambda table, n: (table[:, :12].reshape(-1, 2 * (2 + n % 3))).cumsum(1)),
        "Keep the shape constant",
        given(lambda table, n: (table[:, :12].reshape(-1, 6)).cumsum(1)),
    ),
    Case("an option", "recompile", given(flipped), "Keep the argument constant", given(either_way, held)),
    Case(
        "a number at two lines",
        "recompile",
        given(both_slices),
        " positions that a tensor holds",
        given(both_selected),
        also=("The same number is at 1 more line, line ", "table.exp()[:, at : at + 3]"),
    ),
    Case(
        "a size and a loop",
        "recompile",
        steps(unrolled, batches()),
        ", or mask positions instead of selecting ",
        steps(unrolled_and_masked, batches()),
        also=("That alone is not enough where the loop at line ", "for _ in range(count):"),
    ),
    Case(
        "a size and a range",
        "recompile",
        steps(weighted, batches()),
        ", or mask positions instead of selecting ",
        steps(weighted_and_masked, batches()),
        also=("That alone is not enough where the end of aten::arange at line ",),
    ),
    Case(
        "a size and a top-k",
        "recompile",
        steps(best, scores()),
        ", or mask positions instead of selecting ",
        steps(best_of_real, scores()),
        also=("The padding must not count: -inf in the padding (masked_fill) before aten::topk at line ",),
    ),
    Case(
        "a size and a mean",
        "recompile",
        steps(averaged, scores()),
        ", or mask positions instead of selecting ",
        steps(averaged_where_real, scores()),
        also=("-inf in the padding (masked_fill) before aten::_softmax", "a mask of what is real in aten::mean"),
    ),
    Case(
        "edges of a graph",
        "recompile",
        steps(passed_on, graphs()),
        ", or mask positions instead of selecting ",
        steps(passed_on_by_weight, graphs()),
        also=("It looks like the edges of a graph", "pad with edges of weight 0"),
    ),
    Case(
        "a size and a matrix that is factorized",
        "recompile",
        steps(likelihood, scores()),
        ", or mask positions instead of selecting ",
        steps(likelihood_of_real, scores()),
        also=("rows and columns of the unit matrix in aten::linalg_cholesky_ex", "a mask of what is real in aten::sum"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_graph_is_compiled_no_more(case: Case, tmp_path: Path) -> None:
    take(case, tmp_path)


def test_a_number_that_is_left_at_one_of_its_lines_leaves_as_many_graphs(tmp_path: Path) -> None:
    before, half = (observe(given(use), tmp_path / "run.log") for use in (both_slices, one_of_them))
    assert len(half.of(Compile)) >= len(before.of(Compile))


@pytest.mark.parametrize(
    ("plain", "masked"), [(best, best_of_real), (averaged, averaged_where_real), (likelihood, likelihood_of_real)]
)
def test_the_mask_that_is_advised_keeps_the_result(plain: Any, masked: Any) -> None:
    for x in scores():
        assert torch.allclose(plain(x).cpu(), masked(x).cpu())


def test_edges_of_weight_0_keep_the_result() -> None:
    for edges in graphs():
        assert torch.allclose(passed_on(edges).cpu(), passed_on_by_weight(edges).cpu())


def test_what_works_along_no_padded_dimension_needs_no_mask(tmp_path: Path) -> None:
    rows = [torch.ones(n, 6) for n in NUMBERS]
    run = observe(steps(lambda x: x.to(DEVICE).softmax(1).square(), rows), tmp_path / "run.log")
    (finding,) = (one for one in findings(run.events) if one.kind == "recompile")
    assert "pad it to" in finding.advice
    assert "must not count" not in finding.advice
    assert "That alone" not in finding.advice


@pytest.mark.parametrize("along", ["classes", "rows"])
def test_a_loss_ignores_rows_that_pad_and_needs_no_mask_of_classes_that_a_softmax_masks(
    along: str, tmp_path: Path
) -> None:
    """Words are scored against as many candidates as an example has, or as many words as it has."""

    def step(scores: Any) -> Any:
        labels = torch.zeros(scores.shape[0], dtype=torch.long).to(DEVICE)
        return F.cross_entropy(scores.to(DEVICE) * 0.5, labels)

    given = [torch.randn(3, n) if along == "classes" else torch.randn(n, 3) for n in NUMBERS]
    run = observe(steps(step, given), tmp_path / "run.log")
    (finding,) = (one for one in findings(run.events) if one.kind == "recompile")
    assert ("in the padding before aten::nll_loss" in finding.advice) == (along == "rows")
    assert ("-inf in the padding (masked_fill) before aten::_log_softmax" in finding.advice) == (along == "classes")


def test_the_rows_of_a_warm_up_have_room_in_what_is_padded_to(tmp_path: Path) -> None:
    def program() -> None:
        weights = torch.randn(6, 6).to(DEVICE)
        xr.sync()

        def answer(rows: Any) -> None:
            out = (rows.to(DEVICE) @ weights).softmax(1)
            xr.sync()
            del out

        answer(torch.ones(20, 6))
        for n in NUMBERS:
            answer(torch.ones(n, 6))

    (finding,) = (one for one in findings(observe(program, tmp_path / "run.log").events) if one.kind == "recompile")
    # to one size, or to a smaller one as well: that is a matter of how long the machine compiles
    assert re.search(r"from 2 to 20: pad it to (\d+, )?20\b", finding.advice)
    assert "20" in finding.remedy


def test_the_sizes_that_rows_are_padded_to_are_compiled_ahead(tmp_path: Path) -> None:
    """Short rows often, and long ones that cost so much more that each sort gets a size of its own. The last line of
    the code is run as it stands: after it no step waits for a compiler."""
    lengths = (*(4, 6, 5, 7, 3) * 8, 2_996, 3_000, 2_990)
    story = Story()
    barrier, move = story.line(40, "xr.sync()"), story.line(35, "x = x.to(device)")
    first: dict[int, int] = {}
    for before, n in pairwise((lengths[0], *lengths)):
        change = Change("shape", f"f32[9,{before}]", f"f32[9,{n}]", "input of aten::tanh", made=move, moved=True)
        with story.step():
            new = replace(change, against=first[before]) if first and n not in first else None
            story.barrier(barrier, n / 100, f"{n} long", 500, new)
        first.setdefault(n, len(first) + 1)
    (finding,) = story.findings("recompile")
    assert "pad it to 7, 3000 (2 compiles instead of 8" in finding.advice
    *_, warm = finding.remedy.splitlines()

    def step(x: Any) -> None:
        out = (x * 2.5).tanh().sum()
        xr.sync()
        del out

    def training() -> None:
        exec(warm, {"xlaprof": xlaprof, "step": step, "example": lambda n: (torch.empty(9, n, device="meta"),)})
        for n in lengths:
            step(padded(torch.ones(9, n), 1, 7, 3_000).to(DEVICE))

    compiled = observe(training, tmp_path / "taken.log").of(Compile)
    assert [one.trigger for one in compiled] == ["ahead", "ahead"]
