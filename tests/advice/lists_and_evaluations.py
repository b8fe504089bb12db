"""Programs whose steps hold what a loop beside them recorded, or what a list of tensors has, and their advice taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

import xlaprof.runtime as xr
from tests.advice.recompiled_programs import DEVICE
from tests.advice.taken import Program


def evaluates(barrier: bool) -> Program:
    """Epochs of training steps, and an evaluation that adds up on the device; a sum of it is read after each."""

    def program() -> None:
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        matrix = torch.zeros(4, 4, device=DEVICE)
        for _ in range(4):
            for x in [torch.ones(8, 6)] * 8:
                optimizer.zero_grad()
                model(x.to(DEVICE)).square().mean().backward()
                optimizer.step()
                xr.sync()
            for x in [torch.ones(12, 6)] * 6:
                add_up(matrix, model, x.to(DEVICE))
                if barrier:
                    xr.sync()
            assert matrix.sum().item() is not None

    return program


@torch.no_grad()
def add_up(matrix: Any, model: nn.Module, x: Any) -> None:
    scores = model(x).tanh().softmax(-1)
    matrix += (scores.T @ scores).clamp(0.1, 3.0) * 0.5 + scores.mean(0).exp()


def grids(*, outer: bool, inner: bool) -> Program:
    """Epochs of training steps, each with an evaluation over batches and levels in a function of its own."""

    def program() -> None:
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        held = []
        for _ in range(4):
            for x in [torch.ones(8, 6)] * 8:
                optimizer.zero_grad()
                model(x.to(DEVICE)).square().mean().backward()
                optimizer.step()
                xr.sync()
            held.append(over_grid(model, inner=inner))
            assert held[-1].sum().item() is not None
            if outer:
                xr.sync()

    return program


@torch.no_grad()
def over_grid(model: nn.Module, *, inner: bool) -> Any:
    matrix = torch.zeros(4, 4, device=DEVICE)
    for x in [torch.ones(12, 6)] * 3:
        batch = x.to(DEVICE)
        for level in (0.25, 0.4, 0.9):
            add_up(matrix, model, batch * level)
            if inner:
                xr.sync()
    return matrix / 9.0


def chooses(listed: bool) -> Program:
    """A replay: rows of a few steps, of which each step draws some."""
    drawn = [[(5 * n + 3 * i) % (4 * n + 4) for i in range(3)] for n in range(14)]

    def program() -> None:
        rows: list[Any] = []
        table = torch.zeros(64, 6, device=DEVICE)
        for n, chosen in enumerate(drawn):
            new = torch.ones(4, 6).to(DEVICE) * 2.5
            if listed:
                rows.extend(new.unbind(0))
                batch = torch.stack([rows[i] for i in chosen])
            else:
                table.index_copy_(0, torch.arange(4 * n, 4 * n + 4).to(DEVICE), new)
                batch = table.index_select(0, torch.tensor(chosen).to(DEVICE))
            kept = (batch * 1.5).tanh().sum()
            xr.sync()
            del kept

    return program


def resets(*, apart: bool) -> Program:
    """A log's sum begins anew in each tenth step, ``apart`` from the step's graph."""

    def program() -> None:
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6))).to(DEVICE)
        total = torch.zeros(4, device=DEVICE)
        xr.sync()
        for step in range(40):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            loss = model(torch.ones(4, 8).to(DEVICE)).square().mean(1)
            loss.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
            if apart:
                xr.sync()
            if step % 10 == 9:
                total = torch.zeros(4, device=DEVICE)
                if apart:
                    xr.sync()
            xr.sync()

    return program


def probes(*, removed: bool) -> Program:
    """The mean activity of a layer, which each epoch's hook keeps for its table."""

    def program() -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1)).to(DEVICE)
        tables: list[Any] = []

        def watch(table: list[Any]) -> Callable[..., None]:
            def seen(module: object, inputs: object, output: Any) -> None:
                table[0] = table[0] * 0.9 + output.detach().abs().mean() * 0.1

            return seen

        for _ in range(4):
            tables.append([torch.zeros((), device=DEVICE)])
            handle = model[1].register_forward_hook(watch(tables[-1]))
            xr.sync()
            for _ in range(12):
                loss = model(torch.ones(4, 8).to(DEVICE)).square().mean()
                loss.backward()
                model.zero_grad()
                xr.sync()
                del loss
            if removed:
                handle.remove()

    return program


def sampler(*, taken_out: bool) -> Program:
    """A loop over a tensor of the device: its head takes out all elements as it begins."""

    def program() -> None:
        weight, times = torch.ones(6, 6).to(DEVICE), torch.linspace(1, 2, 7).to(DEVICE)
        xr.sync()
        for _ in range(3):
            image = torch.ones(4, 6).to(DEVICE) * 2
            elements: Iterable[torch.Tensor] = times
            if taken_out:
                elements = list(times)
                xr.sync()
            for _, time in enumerate(elements):
                image = (image @ weight * time).tanh()
                xr.sync()

    return program


def tallies(*, at_once: bool) -> Program:
    """Pairs of classes are counted one by one, in a matrix of the device, or on the host in the end."""

    def program() -> None:
        weight, counts = torch.randn(6, 4).to(DEVICE), torch.zeros(4, 4, device=DEVICE)
        kept = []
        xr.sync()
        for _ in range(8):
            guessed = (torch.randn(5, 6).to(DEVICE) @ weight).tanh().argmax(-1)
            true = torch.randint(0, 4, (5,)).to(DEVICE)
            if at_once:
                kept.append(torch.stack((true, guessed), 1))
            else:
                for one, other in zip(true, guessed, strict=True):
                    counts[one, other] += 1
            xr.sync()
        if at_once:
            matrix = [[0] * 4 for _ in range(4)]
            for pair in torch.cat(kept).tolist():
                matrix[pair[0]][pair[1]] += 1

    return program
