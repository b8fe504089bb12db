"""A graph that holds several training steps says so, with the optimizer's line; what only looks like several, not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.events import Barrier

from .recorded_programs import record


def model(width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 5), nn.Tanh(), nn.Linear(5, width)).to("xla")


def loss(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).square().mean()


def batch() -> torch.Tensor:
    return torch.randn(4, 6).to("xla")


def epochs_of_three_steps() -> None:
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(3):
        for _ in range(3):
            optimizer.zero_grad()
            loss(net, batch()).backward()
            optimizer.step()
        xr.sync()


def both_players_in_each_turn() -> None:
    players = [model(), model()]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in players]
    for _ in range(2):
        for _ in range(3):
            for net, optimizer in zip(players, optimizers, strict=True):
                optimizer.zero_grad()
                loss(net, batch()).backward()
                optimizer.step()
        xr.sync()


def averaged_weights() -> None:
    """Each turn's moving average reads the parameters; another loss is evaluated at the end."""
    net = model()
    average = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        for _ in range(3):
            optimizer.zero_grad()
            loss(net, batch()).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), net.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
        with torch.no_grad():
            held = loss(average, batch())
        xr.sync()
    assert held.item() > 0


def micro_batches() -> None:
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(4):
            (loss(net, batch()) / 4).backward()
        optimizer.step()
        xr.sync()


def players_that_take_turns() -> None:
    """One optimizer each, and three steps of the critic for one of the generator."""
    critic, generator = model(), model()
    for_critic = torch.optim.RMSprop(critic.parameters(), lr=0.01)
    for_generator = torch.optim.RMSprop(generator.parameters(), lr=0.01)
    for _ in range(3):
        for _ in range(3):
            for_critic.zero_grad()
            (loss(critic, batch()) - loss(critic, generator(batch()).detach())).backward()
            for_critic.step()
        for_generator.zero_grad()
        loss(critic, generator(batch())).backward()
        for_generator.step()
        xr.sync()


def heads_on_one_trunk() -> None:
    trunk, heads = model(), [model() for _ in range(3)]
    optimizers = [torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1) for head in heads]
    for _ in range(3):
        for head, optimizer in zip(heads, optimizers, strict=True):
            optimizer.zero_grad()
            loss(head, trunk(batch())).backward()
            optimizer.step()
        xr.sync()


def inner_steps_of_meta_learning() -> None:
    """Reptile: a copy takes some steps for a task, and the model goes a bit into its direction."""
    net = model()
    for _ in range(3):
        copied = copy.deepcopy(net)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss(copied, batch()).backward()
            optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(net.parameters(), copied.parameters(), strict=True):
                mine.lerp_(theirs, 0.3)
        xr.sync()


def two_updates_of_one_step() -> None:
    """Sharpness-aware: up the slope, back, and down, with two backward passes."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss(net, x := batch()).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss(net, x).backward()
        optimizer.step()
        xr.sync()


def graphs(program: Callable[[], None], path: Path) -> list[tuple[int, bool, str]]:
    run = record(path / "run.log", program)
    return [(one.loops, one.loop_trains, run.code(one.loop)) for one in run.of(Barrier) if one.execution]


@pytest.mark.parametrize("program", [epochs_of_three_steps, both_players_in_each_turn, averaged_weights])
def test_each_turn_of_a_training_loop_without_a_barrier_is_counted(program: Callable[[], None], tmp_path: Path) -> None:
    for found in graphs(program, tmp_path):
        assert found == (3, True, "optimizer.step()")


@pytest.mark.parametrize(
    "program",
    [
        micro_batches,
        players_that_take_turns,
        heads_on_one_trunk,
        inner_steps_of_meta_learning,
        two_updates_of_one_step,
    ],
)
def test_what_is_one_step_is_none(program: Callable[[], None], tmp_path: Path) -> None:
    found = graphs(program, tmp_path)
    assert found
    assert not any(trains for _, trains, _ in found)


def test_a_graph_with_a_backward_pass_says_that_it_trains(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def program() -> None:
        for turn in range(4):
            optimizer.zero_grad()
            loss(net, batch()).backward()
            optimizer.step()
            xr.sync()
            with torch.no_grad():
                preview = [net(batch()) for _ in range(turn)]
                xr.sync()
            del preview

    recorded = record(tmp_path / "run.log", program)
    assert [one.trains for one in recorded.of(Barrier) if one.execution] == [True, *[True, False] * 3]


def test_parameters_whose_first_graph_is_the_optimizers_make_no_other_train(tmp_path: Path) -> None:
    """A barrier before the optimizer's step: its graph begins with the parameters, as the evaluation's does."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def program() -> None:
        xr.sync()
        for _ in range(3):
            optimizer.zero_grad()
            loss(net, torch.ones(4, 6, device="xla")).backward()
            xr.sync()
            optimizer.step()
            xr.sync()
            with torch.no_grad():
                error = sum(parameter.abs().sum() for parameter in net.parameters())
                xr.sync()
            del error

    recorded = record(tmp_path / "run.log", program)
    assert [one.trains for one in recorded.of(Barrier) if one.execution][-3:] == [True, True, False]
