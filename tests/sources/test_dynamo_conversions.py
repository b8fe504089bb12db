"""Where the graphs of real programs make numbers wider, and copy tensors between devices: planted, and found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo

from tests.sources.observed import Observed, line_of, observe, observing
from xlaprof.events import DynamoCompile

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(path: Path, function: Any, *args: Any) -> Observed:
    with observing(path / "run.log") as found:
        torch.compile(function, backend="eager")(*args)
    return found[0]


def told(done: Observed) -> Iterator[tuple[str, str, str, str, int, int]]:
    for event in done.of(DynamoCompile):
        for one in event.conversions:
            yield one.kind, one.op, one.old, one.new, done.line(one.stack), one.count


def window(x: Any) -> Any:
    waves = torch.from_numpy(np.sin(x.numpy()))
    ramp = torch.from_numpy(np.linspace(0, 1, 4))  # NumPy's default is float64
    y = waves * ramp
    return (y + 1).sum()


def test_the_line_that_makes_a_graph_compute_in_float64(tmp_path: Path) -> None:
    done = compiled(tmp_path, window, torch.ones(4))
    assert list(told(done)) == [
        ("upcast", "np.linspace", "", "f64", line_of(window, "np.linspace"), 1),
        ("upcast", "mul", "f32", "f64", line_of(window, "waves * ramp"), 1),
    ]
    (event,) = done.of(DynamoCompile)
    assert [one.mixed for one in event.conversions] == [False, True]
    (function,) = done.report.torch_compile.functions
    assert function.runs == (
        f"computes in float64 from test_dynamo_conversions.py:{line_of(window, 'np.linspace')} on (np.linspace makes "
        f"float64): {event.double} of {event.ops} operations",
    )
    assert event.double == 5  # linspace, from_numpy, mul, add, sum


def test_a_float64_argument_beside_a_float32_one(tmp_path: Path) -> None:
    def scaled(x: Any, scale: Any) -> Any:
        return x * scale

    done = compiled(tmp_path, scaled, torch.ones(4), torch.ones(4, dtype=torch.float64))
    (function,) = done.report.torch_compile.functions
    assert function.runs[0].endswith("on (mul takes float64 beside f32): 1 of 1 operations")


def test_all_in_float64_as_the_program_wants_it_is_no_conversion(tmp_path: Path) -> None:
    done = compiled(tmp_path, lambda x: (x.sin() * 2).sum(), torch.ones(4, dtype=torch.float64))
    assert list(told(done)) == []
    assert done.report.torch_compile.functions[0].runs == ()


def test_a_number_beside_a_tensor_makes_nothing_wider(tmp_path: Path) -> None:
    def shifted(x: Any) -> Any:
        return x * torch.tensor(2.5, dtype=torch.float64) + 0.5

    done = compiled(tmp_path, shifted, torch.ones(4))
    # the number itself is float64, and the tensors stay as they are
    assert [(op, old, new) for _, op, old, new, _, _ in told(done)] == [("tensor", "", "f64")]


def test_upcasts_of_autocast_and_of_the_program(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 4)

    def loss(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            hidden = layer(x)
            wide = torch.nn.functional.mse_loss(hidden, torch.zeros(4, 4))  # autocast computes this in float32
        return wide + hidden.float().sum() + hidden[0].float().sum()

    done = compiled(tmp_path, loss, torch.ones(4, 4))
    line = line_of(loss, "return wide")
    assert list(told(done)) == [
        ("upcast", "mse_loss", "bf16", "f32", line_of(loss, "mse_loss"), 1),
        ("upcast", "float", "bf16", "f32", line, 2),
    ]
    (function,) = done.report.torch_compile.functions
    assert function.runs == (
        f"upcasts: bf16 to f32 in mse_loss at test_dynamo_conversions.py:{line - 1} and bf16 to f32 in float at "
        f"test_dynamo_conversions.py:{line}",
    )


def test_copies_between_devices_and_which_of_them_are_for_numpy(tmp_path: Path) -> None:
    """The device without values stands for one with a memory of its own."""

    def moved(x: Any) -> Any:
        away = (x * 2).to("meta")
        held = torch.from_numpy(np.tanh((away + 1).numpy()))
        return held, x.to("cpu")

    def copied(x: Any, there: Any) -> Any:
        there.copy_(x)
        return there + 1

    done = compiled(tmp_path, moved, torch.ones(4))
    assert list(told(done)) == [("copy", "to", "cpu", "meta", line_of(moved, "away ="), 1)]
    (event,) = done.of(DynamoCompile)
    assert [one.numpy for one in event.conversions] == [True]
    (function,) = done.report.torch_compile.functions
    assert function.runs == (
        f"copies between devices: cpu to meta at test_dynamo_conversions.py:{line_of(moved, 'away =')} for NumPy",
    )
    torch._dynamo.reset()
    done = compiled(tmp_path, copied, torch.ones(4), torch.ones(4, device="meta"))
    assert list(told(done)) == [("copy", "copy_", "cpu", "meta", line_of(copied, "copy_(x)"), 1)]
    assert done.of(DynamoCompile)[0].conversions[0].numpy is False


def test_a_graph_that_is_compiled_again_converts_nothing_anew(tmp_path: Path) -> None:
    def doubled(x: Any) -> Any:
        return x.double() * 2

    with observing(tmp_path / "run.log") as found:
        fast = torch.compile(doubled, backend="eager", dynamic=False)
        for size in (4, 5):
            fast(torch.ones(size))
    (done,) = found
    assert len(done.of(DynamoCompile)) == 2
    (function,) = done.report.torch_compile.functions
    assert len(function.conversions) == 1
    assert "2 of 2 operations" in function.runs[0]


def waded(height: Any, flow: Any, bed: Any) -> Any:
    """A river's next state: heights and flows over a bed."""
    drag = bed * 2
    level = height * 0.5 / drag
    return height + level, flow * 0.9 + level


def river(*, narrow: bool, again: bool = True) -> Callable[[], None]:
    """Steps over a bed that NumPy made; or calls that begin anew, of which the second has its state from NumPy, too."""

    def program() -> None:
        fast = torch.compile(waded, backend="eager")
        bed = torch.from_numpy(np.linspace(1, 2, 5)).to(torch.float32 if narrow else torch.float64)
        height, flow = torch.ones(5), torch.zeros(5)
        if again:
            for _ in range(4):
                height, flow = fast(height, flow, bed)
        else:
            fast(height, flow, bed)
            fast(height.double(), flow.double(), bed)

    return program


def test_an_argument_that_makes_a_state_wider_is_named_and_narrowed_once(tmp_path: Path) -> None:
    done = observe(tmp_path, river(narrow=False))
    (finding,) = done.findings("recompile")
    assert finding.cause.endswith("; height changed with it; bed is float64 in each call.")
    assert finding.advice.startswith("Convert bed once, where it is made: bed.to(torch.float32). ")
    at = f"test_dynamo_conversions.py:{line_of(waded, 'height * 0.5')}"
    assert f"so is what {at} (level = height * 0.5 / drag) computes of it" in finding.advice
    assert "Do the same for" not in finding.advice
    torch._dynamo.reset()
    done = observe(tmp_path, river(narrow=True))
    assert done.counts.recompiles == 0


def test_a_state_that_is_wider_by_itself_is_not_told_of_another_argument(tmp_path: Path) -> None:
    (finding,) = observe(tmp_path, river(narrow=False, again=False)).findings("recompile")
    assert "to one dtype before the call" in finding.advice
    assert "bed" not in finding.cause + finding.advice
