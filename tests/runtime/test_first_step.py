"""The first step is the steady one: what a step makes and keeps is an input of its graph from the beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime import parity
from xlaprof.runtime.execution import constants

from .counting import counted


@pytest.fixture(autouse=True)
def as_in_a_new_process() -> None:
    xr.forget_graphs()


def compiles(step: Callable[[int], object], steps: int = 4) -> list[int]:
    """What each of ``steps`` steps compiles, its barrier included."""
    found = []
    for number in range(steps):
        with counted() as cost:
            step(number)
            xr.sync(wait=True)
        found.append(cost.compiles)
    return found


def both(program: Callable[[str], tuple[list[int], list[torch.Tensor]]]) -> list[int]:
    """Run ``program`` on both devices, see that it computes the same, and return what it compiled."""
    (found, got), (_, expected) = program("xla"), program("cpu")
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=2e-5, atol=1e-6)
    return found


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 6))


def batches(device: str) -> Callable[[], torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    return lambda: torch.randn(5, 6, generator=source).to(device)


# -- training -----------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.AdamW(p, lr=0.01),
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    lambda p: torch.optim.Adafactor(p, lr=0.01),
], ids=["AdamW", "SGD", "Adafactor"])  # fmt: skip
@pytest.mark.parametrize("accumulated", [1, 3])
def test_training_with_a_schedule_clipping_and_accumulation_compiles_in_its_first_step_alone(
    make: Callable[[Any], torch.optim.Optimizer], accumulated: int
) -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        model = network().to(device)
        optimizer = make(model.parameters())
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 2))
        batch = batches(device)

        def step(_: int) -> None:
            optimizer.zero_grad()
            for _ in range(accumulated):
                (model(batch()).square().mean() / accumulated).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()

        return compiles(step), [*model.parameters(), *model.buffers()]

    found = both(program)
    assert found[0] >= 1
    assert found[1:] == [0, 0, 0]


def test_closures_as_lightning_has_them_are_one_graph_too() -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        model, batch = network().to(device), batches(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(batch()).square().mean()
            loss.backward()
            return loss

        return compiles(lambda _: optimizer.step(closure)), list(model.parameters())

    assert both(program) == [1, 0, 0, 0]


def test_scaled_gradients_under_autocast_are_one_graph() -> None:
    model, batch = network().to("xla"), batches("xla")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("xla", init_scale=8.0)

    def step(_: int) -> None:
        optimizer.zero_grad()
        with torch.autocast("xla", torch.bfloat16):
            loss = model(batch()).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    assert sum(compiles(step)[1:]) == 0


def test_gradients_that_go_from_none_to_accumulated_are_at_most_one_graph_more() -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        model, batch = network().to(device), batches(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(_: int) -> None:
            model(batch()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

        return compiles(step), list(model.parameters())

    found = both(program)
    assert found[0] == 1
    assert found[1] <= 1
    assert found[2:] == [0, 0]


def test_parameters_of_one_shape_keep_states_of_their_own() -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(4).to(device)) for _ in range(3)]
        optimizer = torch.optim.AdamW(weights, lr=0.1, amsgrad=True)

        def step(number: int) -> None:
            for i, weight in enumerate(weights):
                weight.grad = weight.detach() * (i + 2.5)
            optimizer.step()

        state = lambda: [value for one in optimizer.state.values() for value in one.values()]  # noqa: E731
        return compiles(step), [*weights, *state()]

    assert both(program) == [1, 0, 0, 0]


def test_strict_parity_compiles_the_first_step_and_the_others() -> None:
    def steps() -> list[int]:
        model, batch = network().to("xla"), batches("xla")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step(_: int) -> None:
            optimizer.zero_grad()
            model(batch()).square().mean().backward()
            optimizer.step()

        return compiles(step)

    parity.set_strict(True)
    try:
        assert steps() == [1, 1, 0, 0]
    finally:
        parity.set_strict(False)
    assert steps() == [1, 0, 0, 0]


# -- what a program makes and keeps itself --------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda device: torch.zeros(4, device=device),
    lambda device: torch.ones(4, dtype=torch.float64, device=device),
    lambda device: torch.full((4,), 2.5, device=device),
    lambda device: torch.full((2, 2), 7, dtype=torch.int32, device=device),
    lambda device: torch.zeros(3, dtype=torch.bfloat16, device=device),
    lambda device: torch.tensor(0.0, device=device),
    lambda device: torch.tensor(3, device=device),
    lambda device: torch.zeros(4, device=device).to(device).clone(),
    lambda device: torch.ones(2, device=device).new_full((3,), -1.0),
])  # fmt: skip
def test_a_running_value_is_an_input_from_the_first_step_on(make: Callable[[str], torch.Tensor]) -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        kept = make(device)
        return compiles(lambda _: kept.mul_(2).add_(3)), [kept]

    assert both(program) == [1, 0, 0, 0]


def test_a_static_cache_is_an_input_from_the_first_step_on() -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        cache = [torch.zeros(2, 8, 3, device=device) for _ in range(2)]

        def step(number: int) -> None:
            at = torch.tensor([number]).to(device)
            for i, one in enumerate(cache):
                one.index_copy_(1, at, torch.full((2, 1, 3), i + 4.5, device=device))

        return compiles(step), cache

    assert both(program) == [1, 0, 0, 0]


def test_what_each_step_makes_anew_is_made_in_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(constants, "give", lambda *args, **kwargs: given.append(args))

    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        batch = batches(device)
        held: list[torch.Tensor] = []

        def step(number: int) -> None:
            total = torch.zeros(6, device=device)
            for _ in range(3):
                total += batch().sum(0)
            held[:] = [total]

        return compiles(step), held

    assert both(program) == [1, 0, 0, 0]
    assert given == []


def test_a_total_of_each_epoch_is_an_input_of_its_steps() -> None:
    """It is made before the loop of the barriers: its first step has the graph of the others."""
    batch, found, totals = batches("xla"), [], []
    for _ in range(2):
        total = torch.zeros(6, device="xla")
        for _ in range(3):
            with counted() as cost:
                total += batch().sum(0)
                xr.sync()
            found.append(cost.compiles)
        totals.append(total.cpu())
    again = batches("cpu")
    assert found == [1, 0, 0, 0, 0, 0]
    for got in totals:
        torch.testing.assert_close(got, sum((again().sum(0) for _ in range(3)), torch.zeros(6)))


def test_a_constant_that_another_tensor_shows_stays_an_operation() -> None:
    """Tensors with one first value, of which some are written to: the others still have it."""

    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        a = torch.full((3,), 2.5, device=device)
        b, c, d = a.clone(), torch.empty(3, device=device), a.clone()
        c.copy_(a)

        def step(number: int) -> None:
            a.add_(1)
            d.add_(a)
            if number % 2:
                b.mul_(3)

        return compiles(step), [a, b, c, d, a[1:], b.view(3, 1)]

    both(program)


def test_one_of_two_copies_may_be_let_go() -> None:
    """The same operations, but what began with the constant is gone the second time: it cannot be an input then."""
    kept: list[torch.Tensor] = []

    def run(keep: bool) -> None:
        first = [torch.full((3,), 2.5, device="xla") for _ in range(1)]
        for _ in range(1):
            other = torch.empty(3, device="xla")
            first[0].mul_(2)
            other.copy_(first[0])
            if not keep:
                first.clear()
            xr.sync()
            kept.extend([other, *first])

    for keep in (True, False, True):
        run(keep)
    for one in kept:
        assert one.cpu().tolist() == [5.0] * 3


def test_a_value_that_was_read_before_the_barrier_goes_on_in_the_graph_after_it() -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        kept = [torch.zeros(6, device=device), torch.ones(6, device=device)]
        batch = batches(device)

        def step(number: int) -> None:
            x = batch()
            kept[0] += x[0]
            first = kept[0].sum().item()  # the trace goes on
            kept[1].mul_(x[1]).add_(kept[0])
            kept[1].add_(first)
            kept[0].mul_(kept[1].norm().item())

        return compiles(step), kept

    assert sum(both(program)[1:]) == 0


def test_what_was_read_and_then_let_go_is_computed_no_more() -> None:
    def step(number: int) -> None:
        total = torch.zeros(6, device="xla")
        total += 2.5
        assert total.sum().item() == 15.0

    assert compiles(step) == [1, 0, 0, 0]


def test_keeping_now_this_and_now_that_gives_the_values_of_the_cpu() -> None:
    def program(device: str) -> tuple[list[int], list[torch.Tensor]]:
        kept: list[torch.Tensor] = []
        seen: list[torch.Tensor] = []
        began = torch.zeros(3, device=device), torch.ones(3, device=device)

        def step(number: int) -> None:
            a, b = began
            if number > 2:
                a, b = torch.zeros(3, device=device), torch.ones(3, device=device)
            a.add_(b)
            b.mul_(number + 2)
            c = a.clone()
            c.sub_(0.5)
            kept[:] = [[a], [b], [a, b], [c, a], [c]][number % 5]
            seen.extend(one.clone() for one in kept if number > 4)

        found = compiles(step, steps=12)
        return found, seen

    assert both(program)[10:] == [0, 0]


def test_a_number_that_the_host_would_round_otherwise_stays_in_the_graph() -> None:
    kept = [torch.full((2,), 0.1, dtype=torch.bfloat16, device="xla")]

    def step(number: int) -> None:
        kept[0].mul_(2)

    assert compiles(step) == [1, 1, 0, 0]
    assert torch.equal(kept[0].cpu(), torch.full((2,), 0.1, dtype=torch.bfloat16) * 16)


def test_large_constants_are_filled_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "LARGE", 64)
    monkeypatch.setattr(np, "full", None)  # nothing is made on the host
    kept = [torch.full((32,), 2.5, device="xla")]

    def step(number: int) -> None:
        kept[0].mul_(2)

    assert compiles(step) == [1, 0, 0, 0]
    assert kept[0].cpu().tolist() == [40.0] * 32


def test_random_numbers_are_those_that_come_without_it() -> None:
    def drawn(strict: bool) -> list[torch.Tensor]:
        parity.set_strict(strict)
        try:
            torch.manual_seed(3)
            model, batch = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).to("xla"), batches("xla")
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

            def step(_: int) -> None:
                optimizer.zero_grad()
                (model(batch()) + torch.rand(6, device="xla")).square().mean().backward()
                optimizer.step()

            compiles(step, steps=3)
            return [p.detach().cpu() for p in model.parameters()]
        finally:
            parity.set_strict(False)

    for a, b in zip(drawn(False), drawn(True), strict=True):
        torch.testing.assert_close(a, b)
