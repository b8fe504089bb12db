"""A recording tells of compiled graphs as of any other: which line asked for them, which line each operation is of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import xlaprof
import xlaprof.runtime as xr
from xlaprof import events
from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run

HERE = str(Path(__file__))


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2.5
        return y.sum()  # the forward pass ends


def line(text: str) -> int:
    return next(i for i, row in enumerate(Path(HERE).read_text().splitlines(), 1) if text in row and "line(" not in row)


def test_compiles_and_executions_are_reported_with_the_users_lines(tmp_path: Path) -> None:
    fast = torch.compile(Scaled().to("xla"), backend="openxla")
    x = torch.ones(7, device="xla", requires_grad=True)
    xr.sync()
    with xlaprof.record(tmp_path / "run.log"):
        for _ in range(2):
            loss = fast(x)  # forward
            loss.backward()  # backward
        xr.sync(wait=True)
    reported = list(xlaprof.read(tmp_path / "run.log"))
    stacks = {event.id: event for event in reported if isinstance(event, events.Stack)}
    compiles = [event for event in reported if isinstance(event, events.Compile) and event.trigger == "dynamo"]
    runs = [event for event in reported if isinstance(event, events.Execute) and event.trigger == "dynamo"]
    assert len(compiles) == 2
    assert len(runs) == 4
    assert {run.program for run in runs} == {compile.program for compile in compiles}
    asked = {stacks[run.stack].frames[0] for run in runs}
    assert len(asked) == 2
    assert all(run.stack for run in runs)
    assert all(compile.lower > 0 and compile.backend > 0 for compile in compiles)


def test_operations_keep_the_line_that_dynamo_saw() -> None:
    from xlaprof.runtime.dynamo import bridge

    made: list[bridge.Compiled] = []
    extract = bridge.Compiled.prepared

    def prepared(self: bridge.Compiled, args: list[object]) -> object:
        made.append(self)
        return extract(self, args)

    bridge.Compiled.prepared = prepared  # type: ignore[method-assign, assignment]
    try:
        torch.compile(Scaled().forward, backend="openxla")(torch.ones(7, device="xla"))
    finally:
        bridge.Compiled.prepared = extract  # type: ignore[method-assign]
    (executable,) = made[0].variants.values()
    places = [(node.op.aten, node.frames[0].file, node.frames[0].line) for node in executable.layout.graph.nodes]
    assert places == [("aten::mul", HERE, line("x * 2.5")), ("aten::sum", HERE, line("# the forward pass ends"))]


def recompiles(path: Path) -> list[Finding]:
    run = Run().feed_all(xlaprof.read(path))
    return [finding for finding in run.report().findings if finding.kind == "recompile"]


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_that_dynamo_has_one_graph_for_are_reported_as_recompilations(
    dynamic: bool | None, tmp_path: Path
) -> None:
    width = 6 if dynamic else 7  # what was compiled once is known
    layer = nn.Linear(width, 3).to("xla")
    fast = torch.compile(layer, backend="openxla", dynamic=dynamic)
    with xlaprof.record(tmp_path / "run.log"), torch.no_grad():
        for rows in (9, 11, 13, 11, 14, 9):
            x = torch.rand(rows, width).to("xla")  # the batch
            fast(x)
    reported = {finding.operation: finding for finding in recompiles(tmp_path / "run.log")}
    assert len(reported) == (1 if dynamic else 2)
    found = reported["aten::addmm"]
    assert (found.place.file, found.place.line) == (HERE, line("# the batch"))
    # without dynamic=True the second size is Dynamo's to tell: it captures the graph again, with a symbol
    sizes = [9, 11, 13, 14] if dynamic else [11, 13, 14]
    assert found.count == len(sizes) - 1
    assert found.change is not None
    assert (found.change.what, found.change.old) == ("shape", f"f32[{sizes[0]},{width}]")
    assert [int(value) for value, _ in found.values] == sizes
    assert "Dynamo has one graph for all sizes" in found.cause
    assert "pad it to 14" in found.advice


def test_a_number_that_dynamo_passes_on_is_reported_by_its_values(tmp_path: Path) -> None:
    def first(x: torch.Tensor, count: int) -> torch.Tensor:
        return x.cumsum(0) + torch.arange(count, count + 5, device=x.device)  # here it is used

    fast = torch.compile(first, backend="openxla", dynamic=True)
    x = torch.ones(5, device="xla")
    xr.sync()
    with xlaprof.record(tmp_path / "run.log"):
        for count in (7, 8, 9, 7):
            fast(x, count)
    (found,) = recompiles(tmp_path / "run.log")
    assert found.change is not None
    assert (found.change.what, found.change.old, found.change.new) == ("argument", "7", "8")
    assert found.count == 2
    assert found.place.file == HERE
