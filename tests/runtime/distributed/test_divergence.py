"""Ranks that record different graphs before a collective: all learn the first line in which they differ."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.multiprocessing import ProcessRaisedException

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd
from xlaprof.runtime.distributed.job.ledger import Ledger, Line, Outline, difference, unpack
from xlaprof.runtime.distributed.programs.alike import outline
from xlaprof.runtime.tape.graph import extract

from . import ranks

# -- what graphs have to have in common ---------------------------------------------------------------


def recorded(program: Callable[[], list[torch.Tensor]]) -> Outline:
    """The outline of the graph that ``program``'s tensors need, as a rank would compile it."""
    xr.sync()
    tensors = program()
    tape = tensors[0]._storage.tape  # type: ignore[attr-defined]
    graph = extract(tape.node, tuple(sorted(tensor._storage.slot for tensor in tensors)), tape.input_at)  # type: ignore[attr-defined]
    return outline(graph, 1)


@pytest.fixture
def x(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")
    return torch.randn(4, 4).to("xla")


def test_numbers_and_offsets_may_differ(x: torch.Tensor) -> None:
    one, other = (
        recorded(lambda rank=rank: [xd.all_reduce("sum", (x * rank)[rank : rank + 2] + 0.1 * rank)])  # type: ignore[misc]
        for rank in (0, 2)
    )
    assert one == other


def test_so_may_what_does_not_touch_the_collective(x: torch.Tensor) -> None:
    one = recorded(lambda: [xd.all_reduce("sum", x)])
    other = recorded(lambda: [xd.all_reduce("sum", x), x.sum()])
    assert one == other


@pytest.mark.parametrize(
    ("program", "first"),
    [
        (lambda x: xd.all_reduce("sum", x.relu()), 1),  # another operation
        (lambda x: xd.all_reduce("sum", x[:2] * 2), 1),  # another shape
        (lambda x: xd.all_reduce("sum", (x * 2).double()), 2),  # another dtype
        (lambda x: xd.all_reduce("max", x * 2), 2),  # another reduction
        (lambda x: xd.all_reduce("sum", x * 2) + 1, 3),  # more
    ],
)
def test_the_first_difference_is_found(
    program: Callable[[torch.Tensor], torch.Tensor], first: int, x: torch.Tensor
) -> None:
    one = recorded(lambda: [xd.all_reduce("sum", x * 2)])
    other = recorded(lambda: [program(x)])
    assert one.digest != other.digest
    said = difference(one, unpack(other.pack()), 0, 3)
    assert f"ranks 0 and 3 recorded different graphs, from operation {first} on" in said
    assert said.count(__file__) >= 2


# -- in which order they run --------------------------------------------------------------------------


@pytest.fixture
def ledger() -> Ledger:
    kept = Ledger()
    for name in "AB":
        kept.outline(name, Outline(name, (Line("mul", "train.py:3"), Line(name, f"train.py:{ord(name)}")), "").pack())
    return kept


def test_ranks_that_run_the_same_are_in_order(ledger: Ledger) -> None:
    for rank in (0, 1):
        for at, program in ((1, "A"), (9, "B"), (10, "A")):
            assert ledger.report(rank, (0, 1), at, program) == ""
    assert ledger.report(0, (0, 1), 50, "A") == ""  # it is ahead
    assert ledger.report(0, (0, 2), 1, "B") == ""  # among others


def test_a_turn_that_comes_too_late_is_found(ledger: Ledger) -> None:
    assert ledger.report(0, (0, 1), 1, "A") == ""
    assert ledger.report(1, (0, 1), 1, "A") == ""
    assert ledger.report(1, (0, 1), 7, "B") == ""  # rank 0 may be slow
    said = ledger.report(0, (0, 1), 8, "B")  # which ran A until now
    assert "rank 0 has A at train.py:65; rank 1 has B at train.py:66" in said
    assert "(execution 7 of those with collectives)" in said


def test_a_rank_that_never_turns_is_found_by_how_far_it_is(ledger: Ledger) -> None:
    for rank in (0, 1):
        ledger.report(rank, (0, 1), 1, "A")
    assert ledger.report(1, (0, 1), 7, "B") == ""
    assert ledger.report(0, (0, 1), 6, "A") == ""
    assert "rank 0 has A" in ledger.report(0, (0, 1), 7, "A")


# -- with ranks ---------------------------------------------------------------------------------------


def train(rank: int) -> None:
    """Rank 1 has its own idea of the third step."""
    model = nn.Linear(3, 1).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        loss = model(torch.ones(2, 3).to("xla")).mean()
        if rank == 1 and step == 2:
            loss = loss.tanh()
        loss.backward()
        xd.reduce_gradients(optimizer)
        optimizer.step()
        xr.sync()


def test_another_graph_stops_all_ranks_with_the_line_of_each() -> None:
    with pytest.raises(ProcessRaisedException, match="ranks 0 and 1 recorded different graphs") as raised:
        ranks.run(train)
    lines = {text.strip(): i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1)}
    said = str(raised.value)
    assert "rank 1 has aten.tanh.default(%" in said
    assert f"{__file__}:{lines['loss = loss.tanh()']}" in said
    assert "rank 0 has" in said


SCRIPT = """
import sys, torch, xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd

def step(x, kind):
    y = x * 2
    if kind == "relu":
        y = torch.relu(y)
    if kind == "large":
        y = y.repeat(3000)
    return xd.all_reduce("sum", y + 1)

def run(rank, kind):
    x = torch.arange(4.0).to("xla")
    for known in ("", kind, ""):
        step(x, known)
        z = step(x, known)
        xr.sync(wait=True)
    for i in range(8):  # ranks take turns that they know, at different times
        z = step(x, kind if i == 3 + rank else "")
        xr.sync(wait=True)
    print("ended with", z.sum().item())

if __name__ == "__main__":
    xd.launch(run, args=(sys.argv[1],), nprocs=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("relu", 8),  # the numbers would be wrong, and nothing else
        ("large", 10),  # gloo ends the process
    ],
)
def test_known_graphs_in_another_order(kind: str, line: int, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script, kind], capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "ranks 0 and 1 recorded different graphs" in done.stderr
    assert f"train.py:{line}" in done.stderr
    assert "train.py:11" in done.stderr
    assert "terminate called" not in done.stderr
