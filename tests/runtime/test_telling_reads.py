"""What a recording says of reads, loops and what stays alive: real programs, asked for one thing each."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from recording import Recorded, recording
from torch import nn

import xlaprof
import xlaprof.runtime as xr
from xlaprof import events
from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run
from xlaprof.runtime.instruments.live_tensors import readings
from xlaprof.runtime.tape import unrolled_loops
from xlaprof.source_text.lines import loop_line


@pytest.fixture
def told(tmp_path: Path) -> Callable[[Callable[[], object]], Recorded]:
    def tell(story: Callable[[], object]) -> Recorded:
        xr.sync(wait=True)
        with recording(tmp_path / "run.log") as recorded:
            story()
        return recorded()

    return tell


def findings(recorded: Recorded, *kinds: str) -> list[Finding]:
    found = Run().feed_all(recorded.events).report("run.log").findings
    return [finding for finding in found if not kinds or finding.kind in kinds]


def reads(recorded: Recorded) -> list[Any]:
    return recorded.of(events.TransferFromDevice)


# -- what was asked for


def test_the_library_function_that_reads_is_named(told: Callable) -> None:
    weight = nn.Parameter(torch.ones(4).to("xla"))

    def story() -> None:
        weight.grad = torch.ones(4).to("xla")
        nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)
        f"{weight.sum():.3f}"
        repr(weight)
        weight.sum().item()

    recorded = told(story)
    vias = [recorded.texts.get(read.via, "") for read in reads(recorded)]
    assert vias == ["clip_grad_norm_", "Tensor.__format__", "Tensor.__repr__", ""]


def test_what_the_runtime_calls_for_a_read_is_not_what_the_line_called(told: Callable) -> None:
    weight = torch.ones(3, 3).to("xla")

    def story() -> None:
        with torch.inference_mode():  # PyTorch leaves it to the runtime to take operations apart
            weight.sum().item()
            float(weight.max())

    recorded = told(story)
    assert [recorded.texts.get(read.via, "") for read in reads(recorded)] == ["", ""]


def test_a_value_that_another_thread_reads_stops_nothing(told: Callable) -> None:
    def story() -> None:
        x = torch.ones(3, 3).to("xla") + 1
        xr.sync()
        thread = threading.Thread(target=x.cpu)
        thread.start()
        thread.join()
        x.cpu()

    assert [read.late for read in reads(told(story))] == [True, False]


def test_a_value_is_late_when_the_device_was_given_more_since(told: Callable) -> None:
    weight = torch.ones(3, 3).to("xla")

    def story() -> None:
        before = weight + 1
        xr.sync()
        after = weight + 2
        xr.sync()
        before.sum  # noqa: B018 - still alive
        before.cpu()  # late
        after.cpu()  # not late
        (weight + 3).sum().item()  # computed by the read itself
        after.cpu()  # read before, and more was run since

    assert [read.late for read in reads(told(story))] == [True, False, False, True]


def test_frames_know_the_loop_around_them(told: Callable, tmp_path: Path) -> None:
    def story() -> None:
        for _ in range(2):
            value = torch.ones(2).to("xla") * 2
            value.sum().item()

    recorded = told(story)
    stacks = {stack.id: stack for stack in recorded.of(events.Stack)}
    frame = stacks[reads(recorded)[0].stack].frames[0]
    assert frame.loop == frame.line - 2
    assert recorded.texts[frame.head] == "for _ in range(2):"


SOURCE = """
def train(loader):
    before = 1
    for epoch in range(3):
        # a comment
        for batch in loader:
            loss = model(
                batch,
            )

            if loss:
                step()
        print(epoch)
    else:
        last()
    after = 2
    while after > 1:
        after -= 1


for outer in ():
    def inner():
        return 1
"""


def test_loops_are_found_by_indentation(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(SOURCE)
    lines = SOURCE.splitlines()

    def loop(code: str) -> str:
        found = loop_line(str(file), 1 + next(i for i, line in enumerate(lines) if code in line))
        return lines[found - 1].strip() if found else ""

    assert loop("before = 1") == ""
    assert loop("loss = model(") == "for batch in loader:"
    assert loop("batch,") == "for batch in loader:"
    assert loop("step()") == "for batch in loader:"
    assert loop("print(epoch)") == "for epoch in range(3):"
    assert loop("last()") == ""
    assert loop("after = 2") == ""
    assert loop("after -= 1") == "while after > 1:"
    assert loop("while after > 1:") == "while after > 1:"
    assert loop("for batch in loader:") == "for batch in loader:"
    assert loop("return 1") == ""
    assert loop_line(str(file), 0) == loop_line(str(file), 10_000) == loop_line("<stdin>", 3) == 0


# -- loops in one graph


def test_turns_of_a_loop_share_their_weights_and_layers_do_not() -> None:
    weight = torch.ones(4, 4).to("xla")
    layers = [torch.ones(4, 4).to("xla") * (1 + i) for i in range(12)]
    xr.sync()
    x = torch.ones(2, 4).to("xla")
    for _ in range(12):
        x = (x @ weight).relu()
    turns = unrolled_loops.of(x._storage.tape.node)  # type: ignore[attr-defined]
    assert (turns.times, turns.ops, turns.shared) == (12, 2, True)
    del x
    xr.sync()
    x = torch.ones(2, 4).to("xla")
    for layer in layers:
        x = (x @ layer).relu()
    stack = unrolled_loops.of(x._storage.tape.node)  # type: ignore[attr-defined]
    assert stack.times >= 11  # the first layer was recorded above, on another line
    assert not stack.shared
    del x
    xr.sync()


def test_turns_that_a_backward_pass_goes_through_belong_into_one_graph() -> None:
    """A recurrent network in training, as against an attack that differentiates in each turn and goes on from there."""
    weight = torch.eye(4).to("xla").requires_grad_()
    xr.sync()
    x = torch.ones(2, 4).to("xla")
    for _ in range(24):
        x = (x @ weight).tanh().sigmoid()
    x.sum().backward()
    turns = unrolled_loops.of(x._storage.tape.node)  # type: ignore[attr-defined]
    assert turns.times >= 23  # the first turn has no gradient to hand on
    assert not turns.shared
    del x
    xr.sync()
    x = torch.ones(2, 4).to("xla")
    for _ in range(24):
        x = x.detach().requires_grad_()
        loss = (x @ weight).tanh().sigmoid().sum()
        x = x + torch.autograd.grad(loss, x)[0].sign()
    turns = unrolled_loops.of(x._storage.tape.node)  # type: ignore[attr-defined]
    assert turns.times >= 23
    assert turns.shared
    del x, loss
    xr.sync()


def test_a_loop_turns_as_often_as_its_own_lines_not_as_those_that_it_calls() -> None:
    """A cell over a sequence, called by the loop over batches."""
    weight = torch.eye(4).to("xla")
    xr.sync()

    def sequence(h: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            h = (h @ weight).tanh()
        return h

    total = torch.zeros((), device="xla")
    for n in range(3):
        x = torch.ones(2, 4, device="xla") * (n + 2)
        total = total + sequence(x).sum()
    found = unrolled_loops.of(total._storage.tape.node)  # type: ignore[attr-defined]
    assert (found.times, found.frames[0].func.rpartition(".")[2]) == (24, "sequence")
    assert found.turns[:2] == (8, 3)
    del total, x
    xr.sync()


def test_an_operation_twice_in_a_turn_is_one_turn() -> None:
    weight = torch.ones(4).to("xla")
    xr.sync()
    x = torch.ones(4).to("xla")
    for _ in range(15):
        x = (x * weight * weight).sin() + weight
    assert unrolled_loops.of(x._storage.tape.node).times == 15  # type: ignore[attr-defined]
    del x
    xr.sync()


def attack(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    for _ in range(25):
        x = ((x @ weight).tanh() * weight.sum()).clamp(-1, 1).exp().log().abs().sqrt().sin().cos() + 1
    return x


def test_a_loop_inside_a_step_is_a_missing_barrier_at_its_head(told: Callable) -> None:
    weight = torch.eye(4).to("xla")

    def story() -> None:
        kept = []
        for _ in range(4):
            kept.append(attack(torch.ones(2, 4).to("xla"), weight).sum())
            xr.sync()

    (finding,) = findings(told(story), "missing_barrier")
    assert finding.place.code == "for _ in range(25):"
    assert finding.count in (24, 25)  # the first turn may have been recorded on a line above
    assert finding.confidence == "high"


def test_reads_without_a_barrier_make_the_graph_grow(told: Callable) -> None:
    def story() -> None:
        weight = torch.ones(3).to("xla")
        for _ in range(7):
            weight.add_(weight.sum() * 0.1)
            weight.sum().item()

    recorded = told(story)
    (growing,) = findings(recorded, "growing_graph")
    assert growing.place.code == "for _ in range(7):"
    assert "No barrier ends a turn of the loop" in growing.cause
    (read,) = findings(recorded, "transfer")
    assert read.place.code == "weight.sum().item()"


class Cut(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x.sin()
            xr.sync()
        return x


def test_a_barrier_inside_the_model_is_one_too_many(told: Callable) -> None:
    model = Cut()

    def story() -> None:
        total = torch.zeros(3).to("xla")
        for _ in range(6):
            total += model(torch.ones(3).to("xla"))
            xr.sync()

    (finding,) = findings(told(story), "excess_barriers")
    assert (finding.place.code, finding.count) == ("xr.sync()", 18)
    assert "Cut.forward" in finding.cause
    assert finding.rhythm == "3 times a step"


# -- selections


def test_a_selection_and_its_gradient_are_told_at_both_lines(told: Callable) -> None:
    values = nn.Parameter(torch.arange(8.0).to("xla"))

    def story() -> None:
        for i in range(4):
            mask = values.detach() > i % 2
            loss = values[mask].sum()
            loss.backward()
            xr.sync()

    (recompile,) = (one for one in findings(told(story), "recompile") if one.parts)  # the size that it makes varies
    (found,) = recompile.parts
    assert found.kind == "fallback"
    assert found.place.code == "loss = values[mask].sum()"
    assert [place.code for place in found.also] == ["loss.backward()"]
    assert "nonzero" in found.cause
    assert not findings(told(story), "transfer")


def test_elements_that_are_read_one_by_one_are_no_work_done_twice(told: Callable) -> None:
    """The rows stay alive while they are compared: as views, which cost the next barrier nothing."""
    target = torch.ones(4).to("xla")

    def story() -> None:
        value = torch.arange(4.0).to("xla")
        for _ in range(5):
            value = value * 2
            xr.sync()
            for one, other in zip(value, target, strict=True):
                if one == other:
                    pass

    recorded = told(story)
    graphs = [event for event in recorded.of(events.Compile) if event.trigger == "read"]
    assert [event.again for event in graphs] == [0] * 4
    assert [finding.cause for finding in findings(recorded, "recompile")] == []


# -- what stays alive


def test_what_is_alive_is_read_now_and_then_and_what_is_kept_has_its_line(
    told: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors._APART", 1)
    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors._FIRST_NS", 1 << 60)
    gc.collect()  # the readings tell of everything that lives, other tests' remains too
    xr.sync(wait=True)
    weight = torch.ones(4, 4).to("xla")
    kept: list[torch.Tensor] = []

    def story() -> None:
        for _ in range(12):
            hidden = weight @ weight
            kept.append(hidden.sum(0))
            weight.copy_(hidden / 4)
            xr.sync(wait=True)  # what is still computing is alive, too

    recorded = told(story)
    readings = recorded.of(events.Live)
    assert len(readings) == 12
    tensors = [reading.tensors for reading in readings]
    # what the watcher has just seen end it may hold for a moment more; other tests' may go meanwhile
    assert all(after >= before - 1 for before, after in pairwise(tensors))
    assert 8 <= tensors[-1] - tensors[0] <= 12
    stacks = {stack.id: stack for stack in recorded.of(events.Stack)}
    (line, count, size), *_ = readings[-1].held
    assert recorded.texts[stacks[line].frames[0].code] == "kept.append(hidden.sum(0))"
    assert count >= 8
    assert size == 16 * count


def test_the_first_readings_are_counted_in_barriers_and_then_they_are_seldom(
    told: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors.EVERY_NS", 1 << 60)

    def story() -> None:
        for _ in range(150):
            torch.ones(2).to("xla").sum()
            xr.sync()

    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors._FIRST_NS", 1 << 60)
    at = [*range(1, 50, 4), 53, 58, 63, 69, 75, 82, 90, 99, 108, 118, 129, 141]
    assert len(told(story).of(events.Live)) == len(at)
    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors._FIRST_NS", 0)
    assert len(told(story).of(events.Live)) == 1


def test_nothing_is_read_without_a_recording() -> None:
    readings.reset()
    value = torch.ones(2).to("xla") + 1
    xr.sync()
    assert readings.due == 0
    assert xlaprof.recording.recorder.active is None
    del value


def test_what_a_loop_over_elements_took_out_last_is_no_other_path_of_the_next_batch(told: Callable) -> None:
    """Guesses are counted one by one, each taken out by itself; the last one is still there with the next batch."""

    def guesses(x: torch.Tensor) -> torch.Tensor:
        return (x @ torch.ones(4, 3).to("xla")).softmax(-1).cumsum(-1).argmax(-1)

    def story() -> None:
        counts = [0, 0, 0]
        for _ in range(3):
            for _ in range(6):
                torch.ones(5, 5).to("xla").tanh().sum()
                xr.sync()
            for start in (0.0, 1.0):
                found = guesses((torch.arange(32.0).reshape(8, 4) + start).to("xla"))
                xr.sync()
                for guess in found:
                    counts[int(guess)] += 1

    recorded = told(story)
    (finding,) = findings(recorded, "transfer", "recompile")
    assert finding.place.code == "counts[int(guess)] += 1"
    assert "Bring the whole tensor to the host once, before the loop over its elements" in finding.advice
    assert "end every turn" not in finding.advice
    own = [one for one in recorded.of(events.Compile) if one.trigger == "read"]
    # those of all elements but the first, and that of the barrier which holds the last one
    assert f"each turn takes another element out, as {len(own)} graphs of its own" in finding.cause
