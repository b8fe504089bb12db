"""A module with a number that Python needs: to branch, to count passes, to bound a slice; and with a tensor instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tests.sources.advised import T


class Cutting(torch.nn.Module):
    """Sets the last numbers of a row to 0, as many as it is told; with a tensor it needs no number."""

    def __init__(self, *, need: str) -> None:
        super().__init__()
        self.need, self.last = need, 0
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Any) -> Any:
        if self.need == "condition":
            if self.last == 0:
                return x
            return x * (torch.arange(8) < 8 - self.last)
        if self.need == "slice":
            return x[: 8 - self.last].sum()
        if self.need == "entropy":  # of as many, a number of Python's
            kept = x[: 8 - self.last]
            return kept.sum() / math.log(kept.shape[0])
        if self.need == "entropy, masked":
            left = 8 - self.count
            return torch.where(torch.arange(8) < left, x, 0).sum() / torch.log(left)
        if self.need == "range":
            return x.sum() - torch.ones(self.last).sum()
        if self.need == "loop":
            for _ in range(self.last):
                x = x + 1
            return x
        if self.need == "passes":
            for at in range(4):
                x = torch.where(at < self.count, x + 1, x)
            return x
        return torch.where(torch.arange(8) < 8 - self.count, x, 0).sum()


def cutting(need: str) -> Callable[[], Any]:
    def program() -> None:
        model = Cutting(need=need)
        fast = torch.compile(model, backend="eager")
        for last in (1, 2, 3, 4):
            model.count.fill_(last)
            if need not in ("mask", "passes", "entropy, masked"):
                model.last = last
            fast(torch.ones(8))

    return program


class Counting(torch.nn.Module):
    def __init__(self, count: Any) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Any) -> Any:
        return x * self.count


class Looping(Counting):
    def forward(self, x: Any) -> Any:
        for _ in range(self.count):
            x = x + 1
        return x


class Buffered(torch.nn.Module):
    def __init__(self, count: Any = 2) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(count))

    def forward(self, x: Any) -> Any:
        return x * self.count


def step(state: Any, push: Any) -> Any:
    return state + 0.1 * torch.tanh(push - state)


def rolled(pushes: Any, state: Any) -> Any:
    for push in pushes.unbind(0):
        state = step(state, push)
    return state


def turned_outside() -> None:
    turn = torch.compile(step, backend="eager")
    for size in (4, 7, 9):
        state = T(3)
        for push in T(size, 3).unbind(0):
            state = turn(state, push)
