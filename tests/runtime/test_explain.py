"""Why a graph was compiled again: planted, then found in the recording, on its line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import xlaprof
import xlaprof.runtime as xr
from xlaprof import events

from .recorded_programs import RecordedProgram, record


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], object]], RecordedProgram]:
    return lambda story: record(tmp_path / "run.log", story)


def test_a_ragged_last_batch(recorded: Callable) -> None:
    weight = torch.ones(3, 2).to("xla")

    def story() -> None:
        for rows in (8, 8, 5):
            batch = torch.ones(rows, 3).to("xla")
            out = batch @ weight  # the line
            xr.sync()
            del out

    (change,) = recorded(story).changes[-1:]
    assert (change.what, change.old, change.new) == ("shape", "f32[8,3]", "f32[5,3]")
    assert change.subject == "input of aten::mm"
    assert change.code_seen


def test_another_piece_of_the_program_that_began_with_the_same_input_is_not_the_reason(recorded: Callable) -> None:
    weight = torch.ones(11, 2).to("xla")
    table = torch.ones(5, 11).to("xla")
    torch.nn.functional.embedding(torch.tensor([1, 2]).to("xla"), table)  # enters an f32[5,11] first, as below
    xr.sync()

    def story() -> None:
        for rows in (8, 8, 5):
            batch = torch.ones(rows, 11).to("xla")
            out = batch @ weight
            xr.sync()
            del out

    (change,) = recorded(story).changes[-1:]
    assert (change.what, change.old, change.new) == ("shape", "f32[8,11]", "f32[5,11]")
    assert change.subject == "input of aten::mm"


def test_the_line_is_the_users(recorded: Callable) -> None:
    def story() -> None:
        for dtype in (torch.float32, torch.float64):
            x = torch.ones(2, 7, dtype=dtype).to("xla")
            y = x.cosh()  # here
            xr.sync()
            del y

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.old, change.new) == ("dtype", "f32[2,7]", "f64[2,7]")
    assert run.code(change.stack) == "y = x.cosh()  # here"
    compiled = run.of(events.Compile)[-1]
    assert run.code(compiled.stack) == "xr.sync()"
    frame = run.stacks[change.stack].frames[0]
    first = inspect.getsourcelines(test_the_line_is_the_users)[1]
    assert run.texts[frame.file] == __file__
    assert frame.line == first + 4


def test_a_python_number_that_is_part_of_the_graph(recorded: Callable) -> None:
    x = torch.arange(60.0).reshape(3, 20).to("xla")

    def story() -> None:
        for k in (4, 5):
            y = x.topk(k, dim=1)
            xr.sync()
            del y

    change = recorded(story).changes[-1]
    assert (change.what, change.subject, change.old, change.new) == ("argument", "k of aten::topk", "4", "5")


def test_a_branch_taken_in_some_steps(recorded: Callable) -> None:
    x = torch.ones(4, 9).to("xla")

    def story() -> None:
        for i in range(4):
            y = x.sin()
            y = y.erfinv() if i == 3 else y.atan()
            xr.sync()
            del y

    change = recorded(story).changes[-1]
    assert (change.what, change.old, change.new) == ("operation", "aten::atan", "aten::erfinv")


def test_a_tensor_that_is_still_held(recorded: Callable) -> None:
    x = torch.ones(4, 11).to("xla")
    kept = []

    def story() -> None:
        for i in range(3):
            hidden = x.sinh()
            y = hidden.sum()
            if i == 2:
                kept.append(hidden)
            del hidden
            xr.sync()
            del y

    change = recorded(story).changes[-1]
    assert change.what == "outputs"
    assert (change.old, change.new) == ("1 live outputs", "2 live outputs")
    assert change.subject == "value of aten::sinh is now still held"


def test_numbers_that_were_equal_and_no_longer_are(recorded: Callable) -> None:
    x = torch.ones(4, 13).to("xla")

    def story() -> None:
        for p, q in ((0.5, 0.5), (0.5, 0.25)):
            y = x.acosh() * p + q
            xr.sync()
            del y

    change = recorded(story).changes[-1]
    assert change.what == "scalar"
    assert change.subject == "other of aten::add"
    assert (change.role, change.old, change.new) == ("shared", "0.5", "0.25")


def test_numbers_that_differed_and_are_equal_now(recorded: Callable) -> None:
    x = torch.ones(4, 14).to("xla")

    def story() -> None:
        for p, q in ((0.5, 0.25), (0.5, 0.5)):
            y = x.acosh() * p + q
            xr.sync()
            del y

    change = recorded(story).changes[-1]
    assert (change.what, change.role, change.old, change.new) == ("scalar", "shared", "0.25", "0.5")


def test_a_loop_that_runs_longer(recorded: Callable) -> None:
    x = torch.ones(4, 15).to("xla")

    def story() -> None:
        for n in (2, 3):
            y = x
            for _ in range(n):  # the loop
                y = y.asinh()
            xr.sync()
            del y

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.role, change.old, change.new) == ("operation", "loop", "2 passes", "3 passes")
    assert run.code(change.stack) == "for _ in range(n):  # the loop"


def test_a_last_group_of_fewer_micro_batches(recorded: Callable) -> None:
    weight = torch.ones(13, 2).to("xla").requires_grad_()

    def accumulate(group: int) -> None:
        weight.grad = None
        for _ in range(group):  # the loop
            (torch.ones(11, 13).to("xla") @ weight).relu().sum().backward()

    def story() -> None:
        for group in (4, 4, 1):
            accumulate(group)
            xr.sync()

    run = recorded(story)
    change = run.changes[-1]
    assert (change.role, change.old, change.new) == ("loop", "4 passes", "1 pass")
    assert run.code(change.stack) == "for _ in range(group):  # the loop"


def test_a_branch_that_repeats_some_lines_is_no_loop(recorded: Callable) -> None:
    x = torch.ones(4, 16).to("xla")

    def story() -> None:
        for i in range(4):
            y = x
            for _ in range(3 if i == 3 else 2):
                y = y.asinh() if i < 3 else y.atanh()
            xr.sync()
            del y

    change = recorded(story).changes[-1]
    assert (change.old, change.new) == ("aten::asinh", "aten::atanh")


def test_a_first_graph_has_no_reason_to_be_new(recorded: Callable) -> None:
    from xlaprof.runtime.tape import tapes
    from xlaprof.runtime.trace.trie import prune

    tape = tapes.tape()
    xr.sync()
    tape.nodes = prune(tape.root, 1)
    run = recorded(lambda: (torch.ones(2, 17).to("xla").digamma().sum(), xr.sync()))
    assert run.changes == []


def test_what_a_recording_holds_of_a_step(recorded: Callable) -> None:
    x = torch.ones(4, 19).to("xla")

    def story() -> None:
        with xlaprof.StepTrace("train", step_num=0):
            y = torch.linalg.eigvals(x @ x.t())
            (x * 2.5).sum().item()
            xr.sync(wait=True)
            del y

    run = recorded(story)
    (fallback,) = run.of(events.Fallback)
    assert run.texts[fallback.op] == "aten::linalg_eig"
    assert run.code(fallback.stack) == "y = torch.linalg.eigvals(x @ x.t())"
    reads = [run.texts[r.op] for r in run.of(events.TransferFromDevice)]
    assert reads == ["aten::linalg_eig", "aten::_local_scalar_dense"]
    (barrier,) = run.of(events.Barrier)
    assert barrier.ops > 0
    assert barrier.tracing > 0
    for execution in run.of(events.Execute):
        assert execution.t <= execution.start <= execution.end
    counts = run.of(events.Counters)[-1].counts
    assert counts["aten::linalg_eig"] == 1
    assert counts["TransferFromDeviceTime"] == 2
    assert counts["ExecuteTime"] == len(run.of(events.Execute))
    (device,) = run.of(events.Device)
    assert device.platform == "cpu"


def test_operations_of_a_loop_without_a_barrier_are_counted(recorded: Callable) -> None:
    x = torch.ones(4, 21).to("xla")

    def story() -> None:
        y = x
        for _ in range(30):
            y = y.log1p()
        xr.sync()

    run = recorded(story)
    barrier = run.of(events.Barrier)[-1]
    assert barrier.loops == 30
    assert run.code(barrier.loop) == "y = y.log1p()"


def test_the_backward_pass_has_the_line_that_asked_for_it(recorded: Callable) -> None:
    def story() -> None:
        for rows in (4, 3):
            w = torch.ones(rows, 23, device="xla", requires_grad=True)
            loss = (w.exp() * 2.5).sum()
            loss.backward()
            xr.sync()

    from xlaprof.runtime.tape import tapes

    recorded(story)
    node = tapes.tape().root
    lines = set()
    stack = [node]
    while stack:
        node = stack.pop()
        stack.extend(node.edges.values())
        if node.frames and node.frames[0].file == __file__:
            lines.add(node.frames[0].line)
    first = inspect.getsourcelines(test_the_backward_pass_has_the_line_that_asked_for_it)[1]
    forward, backward = first + 4, first + 5
    assert {forward, backward} <= lines
