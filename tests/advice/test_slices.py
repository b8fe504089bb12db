"""Slices whose start and length vary by themselves: one finding each, and what it advises leaves one graph."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from xlaprof.torch_xla.distributed.parallel_loader import MpDeviceLoader

import xlaprof.runtime as xr
from tests.advice.taken import Case, Program, findings, observe, take
from xlaprof.analysis.model import Finding
from xlaprof.events import Compile

DEVICE = "xla"
LONGEST, WIDTH = 9, 40
#: start and length of one piece, and of another
PIECES = [(4, 5), (15, 6), (4, 6), (15, 5), (1, 5), (12, 9), (4, 2), (30, 9), (1, 6), (12, 2)]
Use = Callable[[torch.Tensor, int, int], Any]


def pieces(use: Use, rows: int = 3) -> Program:
    def program() -> None:
        table = torch.arange(float(rows * WIDTH)).reshape(rows, WIDTH).to(DEVICE)
        xr.sync()
        for start, length in PIECES:
            kept = use(table, start, length)
            xr.sync()
            del kept

    return program


def blanked(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.clone()
    table[:, start : start + length] = 0.0
    return table.sin()


def masked(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.clone()
    inside = torch.zeros(table.shape[1], dtype=torch.bool)
    inside[start : start + length] = True
    table.transpose(1, -1).masked_fill_(inside.to(table.device), 0.0)
    return table.sin()


def rows_blanked(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.t().clone()
    table[start : start + length] = -1.0
    return table.sin()


def rows_masked(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.t().clone()
    inside = torch.zeros(table.shape[0], dtype=torch.bool)
    inside[start : start + length] = True
    table.transpose(0, -1).masked_fill_(inside.to(table.device), -1.0)
    return table.sin()


def chosen(table: torch.Tensor, start: int, length: int) -> Any:
    inside = torch.zeros(table.shape[1], dtype=torch.bool)
    inside[start : start + length] = True
    return torch.where(inside.to(table.device), 0.0, table).sin()


def first_blanked(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.clone()
    table[:, :length] = 0.0
    return table.cos()


def first_masked(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.clone()
    inside = torch.zeros(table.shape[1], dtype=torch.bool)
    inside[0:length] = True
    table.transpose(1, -1).masked_fill_(inside.to(table.device), 0.0)
    return table.cos()


def new(length: int) -> torch.Tensor:
    return torch.arange(3.0 * length).reshape(3, length)


def written(table: torch.Tensor, start: int, length: int) -> Any:
    table, rows = table.clone(), F.pad(new(length), (0, LONGEST - length)).to(table.device)
    table[:, start : start + length] = rows[:, :length]
    return table.tanh()


def written_at(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.clone()
    positions = torch.arange(start, start + LONGEST).clamp(max=start + length - 1)
    rows = new(length)
    padded = torch.cat([rows, rows[:, -1:].expand(3, LONGEST - length)], 1).to(table.device)
    table.index_copy_(1, positions.to(table.device), padded)
    return table.tanh()


def read(table: torch.Tensor, start: int, length: int) -> Any:
    piece = table[:, start : start + length]
    return piece.square().sum()


def read_at(table: torch.Tensor, start: int, length: int) -> Any:
    positions = torch.arange(start, start + LONGEST)
    piece = table.index_select(1, positions.clamp(max=table.shape[1] - 1).to(table.device))
    inside = (positions < start + length).to(table.device)
    return (piece.square() * inside).sum()


def cut_before(table: torch.Tensor, start: int, length: int) -> Any:
    host = torch.arange(float(3 * WIDTH)).reshape(3, WIDTH)
    piece = F.pad(host[:, start : start + length], (0, LONGEST - length)).to(table.device)
    return piece.square().sum()


def two(table: torch.Tensor, start: int, length: int) -> Any:
    table = table.clone()
    table[:, start : start + length] = 0.0
    table[:, 30 - start : 40 - 3 * length // 2] = 1.0
    return table.sin()


def both_masked(table: torch.Tensor, start: int, length: int) -> Any:
    for bounds, value in (((start, start + length), 0.0), ((30 - start, 40 - 3 * length // 2), 1.0)):
        inside = torch.zeros(table.shape[1], dtype=torch.bool)
        inside[slice(*bounds)] = True
        table = torch.where(inside.to(table.device), value, table)
    return table.sin()


def ring(position: Callable[[torch.Tensor, int], int]) -> Program:
    """Rows are written where a tensor says, which the host knows as well."""

    def program() -> None:
        rows, at = torch.zeros(12, 4).to(DEVICE), torch.zeros(1, dtype=torch.long).to(DEVICE)
        xr.sync()
        for n in range(24):
            start = position(at, n)
            where = (torch.arange(start, start + 2) % 12).to(DEVICE)
            rows.index_copy_(0, where, torch.ones(2, 4).to(DEVICE))
            at.copy_((at + 2) % 12)
            xr.sync()

    return program


def read_position(at: torch.Tensor, n: int) -> int:
    return int(at)


def kept_position(at: torch.Tensor, n: int) -> int:
    return 2 * n % 12


def best(choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Program:
    """The mean of the values above 0, of which the device knows how many there are."""

    def program() -> None:
        for n in range(24):
            values = torch.linspace(-1.0, 1.0 + n % 3, 12).to(DEVICE)
            mean = choose(values.sort(descending=True).values, (values > 0).sum())
            xr.sync()
            del mean

    return program


def by_number(ordered: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    size = int((count * 2).clamp(max=12))
    return ordered[:size].mean()


def by_mask(ordered: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    inside = torch.arange(12).to(DEVICE) < (count * 2).clamp(max=12)
    return (ordered * inside).sum() / inside.sum()


WRITE = "Write where a mask from the host holds, with masked_fill_"
READ = "Read as many elements each time as the longest piece has"
CASES = [
    Case("a piece is blanked", "recompile", pieces(blanked), WRITE, pieces(masked)),
    Case("rows are blanked", "recompile", pieces(rows_blanked), WRITE, pieces(rows_masked)),
    Case("a piece is chosen", "recompile", pieces(blanked), "(or torch.where)", pieces(chosen)),
    Case("the first are blanked", "recompile", pieces(first_blanked), WRITE, pieces(first_masked)),
    Case("a piece is written", "recompile", pieces(written), "Write as many elements each time as", pieces(written_at)),
    Case("a piece is read", "recompile", pieces(read), READ, pieces(read_at)),
    Case("a piece is cut before", "recompile", pieces(read), "Or cut before the tensor is brought", pieces(cut_before)),
    Case(
        "a position that is read",
        "transfer",
        ring(read_position),
        "Keep the number in Python, beside the tensor",
        ring(kept_position),
    ),
    Case("a number of elements", "transfer", best(by_number), "Keep one size, the largest, and mask", best(by_mask)),
    Case(
        "two pieces",
        "recompile",
        pieces(two),
        WRITE,
        pieces(both_masked),
        also=("The same is due to the slice at line ", "30 - start : 40 - 3 * length // 2"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_graph_is_compiled_no_more(case: Case, tmp_path: Path) -> None:
    take(case, tmp_path)


@pytest.mark.parametrize(
    ("plain", "mended"),
    [(blanked, masked), (rows_blanked, rows_masked), (blanked, chosen), (first_blanked, first_masked),
     (written, written_at), (read, read_at), (read, cut_before), (two, both_masked)],
)  # fmt: skip
def test_what_is_advised_keeps_the_result(plain: Use, mended: Use) -> None:
    table = torch.arange(float(3 * WIDTH)).reshape(3, WIDTH).to(DEVICE)
    for start, length in PIECES:
        assert torch.equal(plain(table, start, length).cpu(), mended(table, start, length).cpu())


def recompiled(program: Program, path: Path) -> tuple[list[Finding], int]:
    taken = observe(program, path)
    return [one for one in findings(taken.events) if one.kind == "recompile"], len(taken.of(Compile))


@pytest.mark.parametrize(
    ("use", "starts"), [(blanked, "table[:, start : start + length] = 0.0"), (read, "piece = table[:, start")]
)
def test_one_slice_is_one_finding_whichever_of_its_bounds_is_new(use: Use, starts: str, tmp_path: Path) -> None:
    (finding,), graphs = recompiled(pieces(use), tmp_path / "run.log")
    assert finding.place.code.startswith(starts)
    assert finding.count == len(set(PIECES)) - 1 == graphs - 1, "the first is needed, and each other is its"
    assert "xlaprof" not in finding.cause, "the runtime's own write has the bounds of the slice"
    assert finding.evidence[0].endswith("4:9 -> 15:21")


def test_the_gradient_of_a_slice_is_no_second_cause(tmp_path: Path) -> None:
    def step(table: torch.Tensor, start: int, length: int) -> Any:
        weight = torch.ones(3, WIDTH, device=DEVICE, requires_grad=True)
        piece = (table * weight)[:, start : start + length]
        piece.tanh().sum().backward()
        return weight.grad

    (finding,), _ = recompiled(pieces(step), tmp_path / "run.log")
    assert finding.place.code == "piece = (table * weight)[:, start : start + length]"
    assert finding.count == len(set(PIECES)) - 1


def test_code_for_a_slice_says_where_and_what(tmp_path: Path) -> None:
    (finding,), _ = recompiled(pieces(rows_blanked), tmp_path / "run.log")
    assert "inside[start:start + length] = True" in finding.remedy
    assert "table.transpose(0, -1).masked_fill_(inside.to(table.device), -1.0)" in finding.remedy


def test_the_path_that_blanks_nothing_has_a_graph_by_design(tmp_path: Path) -> None:
    chance = random.Random(4)
    blanks = [True, False, *(chance.random() < 0.6 for _ in PIECES[2:])]

    def program() -> None:
        table = torch.ones(3, WIDTH).to(DEVICE)
        xr.sync()
        for blank, (start, length) in zip(blanks * 2, PIECES * 2, strict=True):
            kept = table.clone()
            if blank:
                kept[:, start : start + length] = 0.0
            kept = kept.sinh()
            xr.sync()
            del kept

    (finding,), graphs = recompiled(program, tmp_path / "run.log")
    assert finding.place.code == "kept[:, start : start + length] = 0.0"
    assert finding.count == graphs - 2 == sum(blanks) - 1, "one of the two paths, and the other, are needed"


def test_both_bounds_of_each_of_two_slices_are_recorded(tmp_path: Path) -> None:
    diffs = [one.diff for one in observe(pieces(two), tmp_path / "run.log").of(Compile) if one.diff is not None]
    named = [[(one.subject, one.came.own) for one in diff.differences if one.came] for diff in diffs]
    bounds = {("start of aten::slice", False), ("end of aten::slice", False)}
    assert any(all(one.count(bound) == 2 for bound in bounds) for one in named)
    assert not any(own for one in named for _, own in one), "the write that follows has the same numbers"


class Encoder(torch.nn.Module):
    """Adds its marks of 16 positions, of which it takes as many as the frames are."""

    marks: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("marks", torch.arange(96.0).reshape(1, 16, 6) / 96)
        self.mix = torch.nn.Linear(6, 6)

    def forward(self, frames: torch.Tensor, marks: torch.Tensor | None = None) -> torch.Tensor:
        if marks is None:
            marks = self.marks[:, : frames.shape[1]]
        return self.mix(marks.cos() + frames).square().mean()


def test_a_slice_that_is_none_at_full_length_belongs_to_the_size_of_the_batch(tmp_path: Path) -> None:
    def program() -> None:
        encoder = Encoder().to(DEVICE)
        optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
        batches = [torch.full((4, length, 6), 0.5) for length in (16,) * 6 + (13, 15, 16, 13, 11, 15)]
        for frames in MpDeviceLoader(batches, torch.device(DEVICE)):
            loss = encoder(frames)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    (finding,), _ = recompiled(program, tmp_path / "run.log")
    assert finding.change is not None
    assert (finding.change.old, finding.change.new, finding.count) == ("f32[4,16,6]", "f32[4,13,6]", 3)
    assert "pad it to 16 " in finding.advice, "the length at which no slice is needed is one of them"
