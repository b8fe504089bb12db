"""``warm()``: what a function will need is compiled before it is called, and nothing else has happened."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
import pytest
import torch
from torch import nn

import xlaprof
import xlaprof.runtime as xr
from runtime.counting import counted
from xlaprof import log
from xlaprof.events import Barrier, Compile, Execute, Scope, Step

SIZES = (3, 5)


@pytest.fixture(autouse=True)
def as_in_a_new_process() -> None:
    xr.forget_graphs()


class Training:
    """A small network, its optimizer and schedule, and a step on a batch of any size."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer]) -> None:
        torch.manual_seed(0)
        layers = nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Dropout(0.2)
        self.model = nn.Sequential(*layers).to("xla")
        self.optimizer = make(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        xr.sync()
        return loss.detach()

    def state(self) -> list[Any]:
        """All that a step changes, on the host."""
        held = [*self.model.state_dict().values(), *(p.grad for p in self.model.parameters())]
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        values = [value.cpu() if isinstance(value, torch.Tensor) else value for value in (*held, *kept)]
        return [*values, self.optimizer.param_groups[0]["lr"], self.schedule.last_epoch, self.model.training]


def example(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The shape of a batch, without memory for it."""
    return torch.empty(size, 4, device="meta"), torch.empty(size, dtype=torch.long, device="meta")


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(size)
    x, y = torch.randn(size, 4, generator=source), torch.randint(0, 2, (size,), generator=source)
    return x.to("xla"), y.to("xla")


def same(got: list[Any], expected: list[Any]) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
        else:
            assert a == b


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_of_two_sizes_compiles_nothing_and_computes_the_same(name: str) -> None:
    def train(warm: bool) -> tuple[list[torch.Tensor], int, Training]:
        training = Training(OPTIMIZERS[name])
        xr.sync()
        if warm:
            found = xr.warm(training.step, *map(example, SIZES))
            assert (found.graphs, found.compiled) == (2, 2)
        with counted() as cost:
            losses = [training.step(*batch(size)) for size in SIZES * 2]
        return losses, cost.compiles, training

    losses, compiles, training = train(warm=False)
    expected = [loss.cpu() for loss in losses], training.state()
    xr.forget_graphs()
    losses, after_warming, training = train(warm=True)
    assert (compiles, after_warming) == (2, 0)
    same([loss.cpu() for loss in losses], expected[0])
    same(training.state(), expected[1])


def test_in_the_middle_of_a_training_nothing_is_changed() -> None:
    training = Training(OPTIMIZERS["AdamW"])
    for _ in range(3):
        training.step(*batch(3))
    before, rng = training.state(), xr.get_rng_state()
    numbers = random.getstate(), torch.get_rng_state()
    xr.warm(training.step, example(5))
    same(training.state(), before)
    assert torch.equal(xr.get_rng_state(), rng)
    assert random.getstate() == numbers[0]
    assert torch.equal(torch.get_rng_state(), numbers[1])
    with counted() as cost:
        training.step(*batch(5))
    assert cost.compiles == 0


def test_a_view_that_autograd_has_given_up_is_passed_over() -> None:
    base, weight = torch.zeros(3, device="xla"), torch.ones(3, device="xla", requires_grad=True)
    rows = base.unbind()
    base.mul_(weight)
    with pytest.raises(RuntimeError, match="returns multiple views"):
        _ = rows[1].is_leaf
    training = Training(OPTIMIZERS["AdamW"])
    assert xr.warm(training.step, example(SIZES[0])).compiled == 1


def test_gradients_that_accumulate_and_a_buffer_that_is_made_anew_are_put_back() -> None:
    model = nn.Linear(4, 1, bias=False).to("xla")
    model.register_buffer("mean", torch.zeros(4, device="xla"))
    model(torch.ones(2, 4, device="xla")).sum().backward()
    before = model.weight.grad.cpu(), model.mean.cpu()

    def accumulate(x: torch.Tensor) -> None:
        model.mean = 0.9 * model.mean + 0.1 * x.mean(0)
        model(x).sum().backward()

    xr.warm(accumulate, torch.empty(3, 4, device="meta"))
    assert torch.equal(model.weight.grad.cpu(), before[0])
    assert torch.equal(model.mean.cpu(), before[1])
    accumulate(torch.ones(3, 4, device="xla"))
    assert torch.equal(model.weight.grad.cpu(), before[0] + 3)
    torch.testing.assert_close(model.mean.cpu(), torch.full((4,), 0.1))


def test_copies_from_the_host_into_a_static_batch_are_undone() -> None:
    static = torch.ones(3, device="xla")
    xr.sync()

    def refill() -> torch.Tensor:
        static.copy_(torch.tensor([1.0, 2.0, 3.0]))
        return static * 2

    xr.warm(refill)
    assert static.tolist() == [1, 1, 1]
    view = static[1:]
    xr.warm(refill)
    assert view.tolist() == [1, 1]


def test_values_that_a_function_reads_are_the_number_that_was_asked_for() -> None:
    seen: list[float] = []

    def decide(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.sum().item())
        return x + 1 if seen[-1] > 0 else x - 1

    xr.warm(decide, torch.empty(4, device="meta"))
    xr.warm(decide, torch.empty(4, device="meta"), reads=2.0)
    assert set(seen) == {0.0, 2.0}
    kept: list[torch.Tensor] = []
    with counted() as cost:
        for sign in (-1, 1):
            kept.append(decide(sign * torch.ones(4, device="xla")))
            xr.sync()
    assert seen[-2:] == [-4, 4]
    assert [one.tolist() for one in kept] == [[-2] * 4, [2] * 4]
    assert cost.runs == 4
    assert cost.compiles == 4


def test_a_function_with_a_branch_on_a_loss_scale_takes_its_optimizer_step() -> None:
    model = nn.Linear(4, 1).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("xla", init_scale=8.0)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        xr.sync()

    xr.sync()
    xr.warm(step, torch.empty(3, 4, device="meta"))
    before = model.weight.detach().cpu()
    with counted() as cost:
        step(batch(3)[0])
    assert cost.compiles == 0
    assert scaler.get_scale() == 8.0
    assert not torch.equal(model.weight.detach().cpu(), before)


def test_what_the_function_keeps_elsewhere_has_no_value_and_says_so() -> None:
    kept: list[torch.Tensor] = []
    xr.warm(lambda x: kept.append(x * 2), torch.empty(3, device="meta"))
    with pytest.raises(RuntimeError, match=r"warm\(\) made it in a dry run"):
        kept[0].tolist()
    with pytest.raises(RuntimeError, match=r"warm\(\) made it in a dry run"):
        kept[0] + 1
    assert (torch.ones(2, device="xla") + 1).tolist() == [2, 2]


def test_an_error_of_the_function_passes_through_and_leaves_all_as_it_was() -> None:
    training = Training(OPTIMIZERS["AdamW"])
    training.step(*batch(3))
    before = training.state()

    def fails(x: torch.Tensor, y: torch.Tensor) -> None:
        training.step(x, y)
        raise ZeroDivisionError("of the program's own")

    with pytest.raises(ZeroDivisionError, match="of the program's own"):
        xr.warm(fails, example(5))
    same(training.state(), before)
    training.step(*batch(5))


def test_a_barrier_waits_for_a_program_that_is_compiled_in_the_background() -> None:
    twin = copy.deepcopy(Training(OPTIMIZERS["AdamW"]).model)
    xr.sync()

    def evaluate(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found = twin(x).softmax(-1)
        xr.sync()
        return found

    expected = None
    with counted() as cost:
        later = xr.warm(evaluate, torch.empty(7, 4, device="meta"), wait=False)
        expected = evaluate(batch(7)[0])
        assert later.wait() is later
        assert later.compiled == 1
    assert cost.compiles == 1
    torch.testing.assert_close(expected.sum().item(), 7.0)
    assert xr.warm(evaluate, torch.empty(7, 4, device="meta")).compiled == 0  # it is there


def test_a_program_that_cannot_be_compiled_is_an_error_of_wait() -> None:
    xr.set_custom_compile_options({"xla_no_such_option": True})
    try:
        with pytest.raises(RuntimeError, match="xla_no_such_option"):
            xr.warm(lambda x: x * 3, torch.empty(3, device="meta"))
    finally:
        xr.set_custom_compile_options({})
    assert (3 * torch.ones(3, device="xla")).tolist() == [3, 3, 3]


def test_what_was_compiled_ahead_passes_where_nothing_may_be_compiled() -> None:
    double = lambda x: x * 2 - 1  # noqa: E731
    xr.sync()
    with xlaprof.frozen(after_steps=0, on_recompile="raise"):
        xr.warm(double, torch.empty(4, device="meta"))
        x = batch(4)[0][:, 0].contiguous()
        with pytest.raises(xlaprof.RecompileError):
            (x + 5).tolist()


def test_a_program_that_ends_waits_for_nothing_that_was_ordered() -> None:
    code = """
import torch, xlaprof.runtime as xr
from xlaprof.runtime.warming import workers
workers._MOST = 1
ready = []
workers.build = lambda *_, **__: ready.append(1) or exit_soon.wait()
import threading
exit_soon = threading.Event()
threading._register_atexit(exit_soon.set)
xr.warm(lambda x: x * 2, *(torch.empty(n, device="meta") for n in range(1, 9)), wait=False)
while not ready: pass
import atexit
atexit.register(lambda: print(len(ready), "begun"))
"""
    done = processes.run("-c", code)
    assert (done.returncode, done.stdout) == (0, "1 begun\n"), done.stderr


def test_where_it_cannot_be_it_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"at work already"):
        xr.warm(lambda: xr.warm(lambda: None))
    xr.eager_mode(True)
    try:
        with pytest.raises(RuntimeError, match="eager mode"):
            xr.warm(lambda: None)
    finally:
        xr.eager_mode(False)

    @torch.compile(backend="openxla")
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    with pytest.raises(RuntimeError, match="openxla"):
        xr.warm(compiled, torch.empty(3, device="meta"))
    assert (torch.zeros(3, device="xla") + 1).tolist() == [1, 1, 1]


def test_a_recording_has_the_programs_and_nothing_of_the_dry_run(tmp_path: Path) -> None:
    training = Training(OPTIMIZERS["AdamW"])
    xr.sync()
    with xlaprof.record(tmp_path / "run.log"):

        def step(x: torch.Tensor, y: torch.Tensor) -> None:
            with xlaprof.StepTrace("train"):
                training.step(x, y)

        xr.warm(step, *map(example, SIZES))
        for size in SIZES:
            step(*batch(size))
        xr.sync(wait=True)
    events = list(log.read(tmp_path / "run.log"))
    made = [event for event in events if isinstance(event, Compile)]
    assert [event.trigger for event in made] == ["ahead"] * 2
    assert sum(isinstance(event, Step) for event in events) == 2
    assert sum(isinstance(event, Execute) for event in events) == 2
    assert sum(isinstance(event, Barrier) for event in events) == 2 + 2  # warm() begins with one
    assert sum(isinstance(event, Scope) for event in events) == 1
    report = xlaprof.report(tmp_path / "run.log")
    assert not [one.cause for one in report.findings if one.kind == "recompile"]
