"""Programs with numbers that are constants of a graph, or with sums that a step finds of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import xlaprof.runtime as xr
from tests.advice.recompiled_programs import DEVICE
from tests.advice.taken import Program


def filled(level: Any) -> Any:
    x = torch.ones(4, 6).to(DEVICE)
    return (x.exp() * torch.full((4, 1), level, device=DEVICE)).sum()


def expanded(level: Any) -> Any:
    x = torch.ones(4, 6).to(DEVICE)
    return (x.exp() * torch.tensor([level]).to(DEVICE).expand((4, 1))).sum()


def threshold(k: int) -> Any:
    x = torch.arange(24.0).to(DEVICE)
    return (x > x.topk(k, largest=False).values[-1]).sum()


def threshold_at(k: int) -> Any:
    x = torch.arange(24.0).to(DEVICE)
    position = torch.tensor([k - 1]).to(DEVICE)
    return (x > x.sort().values.index_select(0, position)).sum()


def blank(keys: Any, at: int, k: Any) -> None:
    keys[..., at : at + 8] = 0.5


def blank_at(keys: Any, at: int, k: Any) -> None:
    positions = torch.arange(at, at + 8).to(keys.device)
    keys.index_fill_(-1, positions, 0.5)


def watches(*, before: bool) -> Program:
    """The norm of what each step computes; the first step of each pass finds none of the step before."""

    def late(weight: Any) -> None:
        for _ in range(6):
            y = (torch.ones(4, 6).to(DEVICE) @ weight).tanh()
            xr.sync()
            norm = y.norm()
            norm.item()

    def early(weight: Any) -> None:
        for _ in range(6):
            norm = (torch.ones(4, 6).to(DEVICE) @ weight).tanh().norm()
            xr.sync()
            norm.item()

    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        xr.sync()
        for _ in range(4):
            (early if before else late)(weight)

    return program


def sums(*, zeros: bool) -> Program:
    """The shares of three clients, in each of six rounds."""

    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        for _ in range(6):
            total = torch.zeros(4, 6, device=DEVICE) if zeros else None
            xr.sync()
            for _ in range(3):
                share = (torch.ones(4, 6).to(DEVICE) @ weight).tanh()
                if total is not None:
                    share = share + total
                total = share
                xr.sync()

    return program


def learned_turns(counts: Sequence[int], *, masked: bool) -> Program:
    def program() -> None:
        weight = torch.ones(6, 6, device=DEVICE, requires_grad=True)
        most = max(counts)
        for count in counts:
            x = torch.ones(4, 6).to(DEVICE)
            if masked:
                due = torch.tensor([count]).to(DEVICE)
                for i in range(most):
                    x = torch.where(i < due, (x @ weight).tanh(), x)
            else:
                for _ in range(count):
                    x = (x @ weight).tanh()
            (gradient,) = torch.autograd.grad(x.sum(), weight)
            xr.sync()
            del x, gradient

    return program


def gated(gates: Sequence[float], *, as_tensor: bool) -> Program:
    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        for gate in gates:
            x = torch.ones(4, 6).to(DEVICE)
            factor = torch.tensor([gate]).to(DEVICE) if as_tensor else gate
            y = (x + factor * (x @ weight)).sum()
            xr.sync()
            del x, y, factor

    return program
