"""Modules that torch.compile compiles again for what a call makes anew: a class, a table for one more size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def gate(width: int) -> Any:
    """A gate of a mixture, as a closure: the class is another in each call."""

    class Gate(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = torch.nn.Linear(3, width)

        def forward(self, x: Any) -> Any:
            return self.score(x).softmax(-1)

    return Gate()


class Gated(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = torch.nn.Linear(3, width)

    def forward(self, x: Any) -> Any:
        return self.score(x).softmax(-1)


def gates(make: Callable[[int], Any]) -> Callable[[], Any]:
    def program() -> None:
        for one in [make(4) for _ in range(4)]:
            torch.compile(one, backend="eager")(torch.ones(3))

    return program


class Distances(torch.nn.Module):
    """An attention's bias by distance: a table for each length, or one for the largest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.known: dict[int, Any] = {}
        self.register_buffer("table", -(torch.arange(most)[:, None] - torch.arange(most)).abs().float())

    def bias(self, length: int) -> Any:
        if len(self.table):
            return self.table[:length, :length]
        if length not in self.known:
            self.known[length] = -(torch.arange(length)[:, None] - torch.arange(length)).abs().float()
        return self.known[length]

    def forward(self, x: Any) -> Any:
        return (x @ x.mT + self.bias(x.shape[0])).softmax(-1) @ x
