"""A program, the advice that it gets, and the program that follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch._dynamo

T = torch.ones


class Case(NamedTuple):
    name: str
    before: Callable[[], Any]
    words: str  # of the advice
    after: Callable[[], Any]
    left: int = 0  # recompilations that remain


def calls(function: Any, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """A program that compiles a function and calls it with each of these."""

    def program() -> None:
        fast = torch.compile(function, backend="eager", **options)
        for one in arguments:
            fast(*(one() if callable(one) else one))

    return program


def times(x: Any, k: Any = 2) -> Any:
    return x * k


def with_config(program: Callable[[], Any], **config: bool) -> Callable[[], Any]:
    def configured() -> None:
        with torch._dynamo.config.patch(**config):
            program()

    return configured
