"""What fails after it was recorded: memory, the compiler, the device, Ctrl-C. Told with the line; the rest goes on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.lowering.registry import LOWERINGS, lower

from ..test_device import in_a_fresh_process  # noqa: TID252

HUGE = 10**13


def here() -> str:
    """This file, as messages name it."""
    return __file__


def line_of(story: Callable[..., object], code: str) -> int:
    """The number of the line of a test that has ``code``."""
    first = story.__code__.co_firstlineno
    lines = Path(__file__).read_text().splitlines()[first - 1 :]
    return first + next(i for i, line in enumerate(lines) if code in line)


@pytest.fixture(autouse=True)
def afresh() -> None:
    xr.sync(wait=True)


def test_out_of_memory_names_the_operation_the_line_and_the_sizes() -> None:
    x = torch.empty(HUGE, device="xla")
    y = x + 1  # the mistake
    with pytest.raises(torch.OutOfMemoryError) as caught:
        xr.sync()
    line = line_of(test_out_of_memory_names_the_operation_the_line_and_the_sizes, "# the mistake")
    says = str(caught.value)
    assert says.startswith("xla:0 out of memory. Tried to allocate 72.8 TiB; the device has ")
    assert f"aten::add at {here()}:{line} makes the largest value, f32[{HUGE}]" in says
    uses: list[Callable[[torch.Tensor], object]] = [lambda t: t[:2].tolist(), lambda t: t * 2, repr]
    for use in uses:
        with pytest.raises(torch.OutOfMemoryError, match="the computation of this tensor failed: xla:0 out of memory"):
            use(y)
    assert (torch.ones(2, device="xla") + 1).tolist() == [2.0, 2.0]


def test_what_does_not_depend_on_the_failure_is_computed() -> None:
    fine = torch.arange(3.0).to("xla")
    before = fine * 2
    huge = torch.ones(HUGE, device="xla") + 1.5
    after, part = before + 1, huge[:3] + before
    with pytest.raises(torch.OutOfMemoryError):
        xr.sync()
    assert (before.tolist(), after.tolist()) == ([0.0, 2.0, 4.0], [1.0, 3.0, 5.0])
    with pytest.raises(torch.OutOfMemoryError, match="computation of this tensor failed"):
        part.tolist()


def test_a_step_that_did_not_fit_can_be_taken_again_with_a_smaller_batch() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    def step(batch: int) -> None:
        optimizer.zero_grad()
        model(torch.ones(batch, 3, device="xla")).mean().backward()
        optimizer.step()
        xr.sync()

    step(2)
    before = model.weight.tolist()
    with pytest.raises(torch.OutOfMemoryError):
        step(HUGE)
    assert model.weight.tolist() == before
    step(2)
    expected = torch.tensor(before) - 0.5 * (1 + 0.9)
    torch.testing.assert_close(model.weight.cpu(), expected)


def test_a_read_that_fails_leaves_the_rest_pending() -> None:
    x = torch.ones(3).to("xla")
    y = x * 3
    huge = torch.zeros(HUGE, device="xla")
    with pytest.raises(torch.OutOfMemoryError, match="aten::zeros at"):
        huge.cpu()
    del huge
    xr.sync()
    assert y.tolist() == [3.0, 3.0, 3.0]


library = torch.library.Library("xlaprof_errors", "FRAGMENT")
library.define("breaks(Tensor x) -> Tensor")
library.impl("breaks", torch.clone, "Meta")


@pytest.fixture
def breaks() -> Iterator[None]:
    """An operator whose lowering passes when it is tried alone, and fails when a graph with it is compiled."""
    tried: list[bool] = []

    @lower("xlaprof_errors.breaks.default")
    def breaks(ctx: Any, x: Any) -> Any:
        tried.append(True)
        if len(tried) > 1:
            raise ValueError("no such instruction")
        return x

    yield
    del LOWERINGS["xlaprof_errors.breaks.default"]


ON_THE_DEVICE = """
import logging
import jax, torch, xlaprof.runtime as xr
from xlaprof.runtime.lowering.registry import lower

logging.disable()  # jax's own report of the callback
library = torch.library.Library("late", "DEF")
library.define("fails(Tensor x) -> Tensor")
library.impl("fails", torch.clone, "Meta")

@lower("late.fails.default")
def fails(ctx, x):
    def bang(x):
        raise ValueError("bang")
    return jax.pure_callback(bang, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

def told(call):
    try:
        call()
        print("nothing | True")
    except RuntimeError as error:
        print(str(error).split(" failed on xla:0: ")[0], "|", "bang" in str(error))

slow = torch.rand(1200, 1200).to("xla")
for _ in range(10):
    slow = (slow @ slow).sin()
xr.sync()  # the device is busy: what needs the result cannot have run when the next barriers return
read = torch.ops.late.fails(slow[:2, :2]) + 1  # line 28
xr.sync()
waited = torch.ops.late.fails(slow[:2, :2]) * 3  # line 30
xr.sync()
told(lambda: read.tolist())
told(lambda: read * 2)
told(xr.wait_device_ops)
told(xr.wait_device_ops)
print((torch.ones(2, device="xla") + (slow * 0).sum()).tolist(), flush=True)
import os; os._exit(0)  # jax would report the callback's failure again
"""


def test_a_failure_on_the_device_is_raised_by_who_reads_or_waits() -> None:
    done = in_a_fresh_process(ON_THE_DEVICE)
    assert done.stdout.splitlines() == [
        "f32[2,2] of aten::add at <string>:28, | True",  # the read names what it reads
        "the computation of this tensor failed: f32[2,2] of aten::add at <string>:28, | True",
        "a graph of 4 operations that ends with aten::mul at <string>:30 | True",  # the wait, what failed
        "nothing | True",  # told once
        "[1.0, 1.0]",
    ], done.stdout + done.stderr


def test_an_operation_that_cannot_be_compiled_is_named(breaks: None) -> None:
    x = torch.ones(2).to("xla")
    fine, broken = x + 1, torch.ops.xlaprof_errors.breaks(x) * 2
    jax.clear_caches()  # what was traced when it was recorded would be compiled as it is
    line = line_of(test_an_operation_that_cannot_be_compiled_is_named, "breaks(x)")
    says = rf"xlaprof_errors::breaks at {here()}:{line} cannot be compiled for xla: ValueError: no such instruction"
    with pytest.raises(RuntimeError, match=says):
        xr.sync()
    assert fine.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="the computation of this tensor failed"):
        broken.tolist()


class CtrlC:
    """Rings some seconds from now."""

    rung = 0

    def ring(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[CtrlC]:
    """Rings Ctrl-C, and again where Python swallows it (in callbacks of collections)."""
    bell = CtrlC()

    def interrupt(signum: int, frame: FrameType | None) -> None:
        bell.rung += 1
        raise KeyboardInterrupt

    def swallowed(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            bell.ring(0.001)
        else:
            others(unraisable)

    others = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", swallowed)
    before = signal.signal(signal.SIGALRM, interrupt)
    yield bell
    bell.ring(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def when_lowered() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Calls a function when jax has lowered a program and is about to compile it."""
    listeners: list[Callable[..., None]] = []

    def register(call: Callable[[], None]) -> None:
        def listener(name: str, seconds: float, **_: Any) -> None:
            if name.endswith("jaxpr_to_mlir_module_duration"):
                call()

        listeners.append(listener)
        jax.monitoring.register_event_duration_secs_listener(listener)

    yield register
    for listener in listeners:
        jax.monitoring.unregister_event_duration_listener(listener)


def test_ctrl_c_in_the_middle_of_anything_loses_nothing(ctrl_c: CtrlC) -> None:
    count = torch.zeros(1).to("xla")
    matrix = torch.eye(64).to("xla")
    xr.sync()
    count.add_(1)

    def work() -> None:
        x = matrix
        while True:  # records, compiles, runs and reads, until Ctrl-C
            x = (x @ matrix + x.sin()).cos()
            x.sum().item()
            if ctrl_c.rung:  # a callback of jax's C++ swallowed it, as any may; but not time after time
                assert ctrl_c.rung < 5
                ctrl_c.ring(0.01)

    ctrl_c.ring(0.2)
    with pytest.raises(KeyboardInterrupt):
        work()
    assert count.item() == 1.0
    xr.sync()
    count.add_(1)
    assert count.tolist() == [2.0]


def test_ctrl_c_in_a_barrier_cuts_nothing(when_lowered: Callable[[Callable[[], None]], None]) -> None:
    presses = iter([KeyboardInterrupt])

    def press() -> None:
        for ctrl_c in presses:
            raise ctrl_c

    x = torch.ones(2).to("xla")
    xr.sync()
    x.add_(1)
    y = x
    for i in range(300):
        y = (y * 1.5 + i).sin()
    when_lowered(press)
    with pytest.raises(KeyboardInterrupt):
        xr.sync()
    xr.sync()
    assert x.tolist() == [2.0, 2.0]
    assert torch.isfinite(y).all().item()


def test_an_exception_in_a_hook_leaves_the_pass_and_nothing_else() -> None:
    w = torch.ones(2, device="xla", requires_grad=True)

    def refuse(gradient: torch.Tensor) -> None:
        raise ValueError("not this one")

    y = (w * 3).sum()
    removable = w.register_hook(refuse)
    with pytest.raises(ValueError, match="not this one"):
        y.backward()
    removable.remove()
    (w * 2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2.0, 2.0]
