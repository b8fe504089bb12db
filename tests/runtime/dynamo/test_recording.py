"""A recording tells of compiled graphs as of any other: which line asked for them, which line each operation is of."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import xlaprof
import xlaprof.runtime as xr
from xlaprof import events

HERE = str(Path(__file__))


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2.5
        return y.sum()  # the forward pass ends


def line(text: str) -> int:
    return next(i for i, row in enumerate(Path(HERE).read_text().splitlines(), 1) if text in row and "line(" not in row)


def test_compiles_and_executions_are_told_with_the_users_lines(tmp_path: Path) -> None:
    fast = torch.compile(Scaled().to("xla"), backend="openxla")
    x = torch.ones(7, device="xla", requires_grad=True)
    xr.sync()
    with xlaprof.record(tmp_path / "run.log"):
        for _ in range(2):
            loss = fast(x)  # forward
            loss.backward()  # backward
        xr.sync(wait=True)
    told = list(xlaprof.read(tmp_path / "run.log"))
    stacks = {event.id: event for event in told if isinstance(event, events.Stack)}
    compiles = [event for event in told if isinstance(event, events.Compile) and event.trigger == "dynamo"]
    runs = [event for event in told if isinstance(event, events.Execute) and event.trigger == "dynamo"]
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
