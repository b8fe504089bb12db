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


def damped(on_the_device: bool) -> Program:
    """What a step computes scales a number that the next one takes."""
    damping: Any = torch.ones((), device="xla") if on_the_device else 1.0

    def step(n: int, x: Any) -> None:
        nonlocal damping
        if on_the_device:
            damping = damping * (1 + (x * 0).sum())
        else:
            damping *= 1 + float((x * 0).sum())

    return lambda: (loop(step)(), print(float(damping)))


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


def halved(n: int, x: Any) -> Any:
    rate = 4.0
    while rate > 0.1:
        if (x * rate).sum() < 90:
            break
        rate = rate / 2
    return x * rate


def halved_by_a_mask(n: int, x: Any) -> Any:
    rate = x.new_full((1,), 4.0)
    for _ in range(6):
        rate = torch.where((x * rate).sum() < 90, rate, rate / 2)
    return x * rate


def capped(n: int, x: Any) -> Any:
    return [min(row.sum() - n, torch.full_like(row.sum(), 9.5)) for row in x]


def capped_at_once(n: int, x: Any) -> Any:
    return torch.minimum(x.sum(1) - n, torch.full_like(x[0], 9.5))


def classes(**given: int) -> Step:
    return lambda n, x: torch.nn.functional.one_hot(x.argmax(-1), **given) * x.sum()


def trained(make: Any) -> Program:
    def program() -> None:
        weight = torch.nn.Parameter(torch.ones(4, 4, device="xla"))
        optimizer = make([weight], lr=0.1)
        for _ in range(STEPS):
            weight.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            xr.sync()

    return program


def binned(on_the_host: bool) -> Program:
    def program() -> None:
        scores = torch.linspace(0, 3.9, 24).to("xla")
        for _ in range(3):
            scores = scores * 0.97
            xr.sync()
        bins = [0] * 4
        for one in scores.cpu() if on_the_host else scores:
            bins[int(one)] += 1

    return program


def learned(watched: bool) -> Step:
    def step(n: int, x: Any) -> Any:
        weight = torch.nn.Parameter(x)
        with torch.autograd.set_detect_anomaly(watched):
            (weight * x).square().sum().backward()
        return weight.grad

    return step


def acts_for_many(by_a_copy: bool) -> Program:
    """Moves of 24 paddles at a time, by the network on the device, or by a copy that is brought up to date now and
    then."""

    def program() -> None:
        torch.manual_seed(0)
        weight = torch.randn(4, 3).to("xla")
        xr.sync()
        copy = weight.cpu()
        seen = torch.ones(24, 4)
        for n in range(2 * STEPS):
            action = (seen @ copy).argmax(-1) if by_a_copy else (seen.to("xla") @ weight).argmax(-1).cpu()
            seen = torch.roll(seen, 1, 1) + action[:, None] / 9
            weight = weight * 0.99
            xr.sync()
            if by_a_copy and n % 20 == 19:
                copy = weight.cpu()

    return program
