"""Loops that keep, add up or show what they compute: on the host, or on the device as advised."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

import xlaprof.runtime as xr
from tests.advice.taken import STEPS, Program

Step = Callable[[int, Any], object]
quiet = logging.Logger("quiet", logging.WARNING)


def loop(step: Step, steps: int = STEPS) -> Program:
    """A loop whose steps get their number and a tensor of 4 x 4 on the device."""

    def program() -> None:
        x = (torch.eye(4) + 1).to("xla")
        xr.sync(wait=True)
        for n in range(steps):
            y = x + (n / 2 + 3)
            step(n, y)
            xr.sync()
        xr.sync(wait=True)

    return program


def tallied(on_the_device: bool) -> Program:
    """Hits are counted, on the host or on the device."""
    hits: Any = torch.zeros((), device="xla") if on_the_device else 0

    def step(n: int, x: Any) -> None:
        nonlocal hits
        if on_the_device:
            hits += (x.argmax(-1) == 1).sum()
        else:
            hits += int((x.argmax(-1) == 1).sum())

    return lambda: (loop(step)(), print(int(hits)))


def kept_for_later(on_the_device: bool) -> Program:
    kept = list[Any]()

    def step(n: int, x: Any) -> None:
        if on_the_device:
            kept.append((x * 2).detach())
        else:
            kept.append((x * 2).cpu())

    return lambda: (loop(step)(), print(torch.stack(kept).cpu().shape))


def by_weekday(on_the_device: bool) -> Program:
    """Errors are added up by the weekday of a step's two rows, which differ from step to step."""
    errors: Any = torch.zeros(7, device="xla") if on_the_device else [0.0] * 7

    def step(n: int, x: Any) -> None:
        days = [n * n % 7, n * 3 % 7]
        wrong = x[:2].square().mean(-1)
        if on_the_device:
            errors.index_add_(0, torch.tensor(days).to("xla"), wrong)
            return
        for day, error in zip(days, wrong, strict=True):
            errors[day] += float(error)

    return lambda: (loop(step)(), print(sum(errors)))


def shown_at_level(asked: bool) -> Program:
    """A message that nobody sees is made all the same."""

    def step(n: int, x: Any) -> None:
        if asked and not quiet.isEnabledFor(logging.DEBUG):
            return
        quiet.debug(f"mean {x.mean():.3f}")

    return loop(step)
