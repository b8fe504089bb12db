"""Advice is tried: the program as it is, and as the advice says. What the finding counts is gone, or less.

Each case is a program as users write it, the words of the advice it gets, and the program that follows these words.
``tests/sources/test_dynamo_advice.py`` does the same for ``torch.compile``, the pages of ``docs/findings`` for every
kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from recording import recording
from torch.distributions import Normal

import xlaprof.runtime as xr
from xlaprof import events
from xlaprof.analysis.run import Run
from xlaprof.events import Compile, Fallback, TransferFromDevice

STEPS = 16


class Case(NamedTuple):
    name: str
    kind: str
    before: Callable[[int, Any], object]  # a step: its number, and a tensor of 4 x 4 on the device
    words: str  # of the advice
    after: Callable[[int, Any], object]
    counts: type[events.Event] = TransferFromDevice


def distribution(**options: Any) -> Callable[[int, Any], object]:
    return lambda n, x: Normal(x, 1.0, **options).log_prob(x)


def clipped(**options: Any) -> Callable[[int, Any], object]:
    def step(n: int, x: Any) -> None:
        weight = torch.nn.Parameter(x)
        weight.grad = x * 2
        torch.nn.utils.clip_grad_norm_([weight], 1.0, **options)

    return step


def every_tenth(read: Callable[[Any], object]) -> Callable[[int, Any], object]:
    return lambda n, x: read(x) if n % 10 == 0 else None


def total(loss: Any) -> float:
    return float(loss.sum())


def branches(n: int, x: Any) -> Any:
    if x.sum() > 3:
        return x * 2
    return x


def asserted(n: int, x: Any) -> None:
    assert x.shape == (4, 4)
    assert (x > -100).all()


def looped(n: int, x: Any) -> Any:
    while x.sum() > 60:
        x = x - 4
    return x


CASES = [
    Case("a loss", "transfer", lambda n, x: total(x), "every 10 steps", every_tenth(lambda x: total(x))),
    Case("a print", "transfer", lambda n, x: print(x), "Print every 10 steps", every_tenth(lambda x: print(x))),
    Case(
        "a test for NaN",
        "transfer",
        lambda n, x: torch.isnan(x).any().item(),
        "a flag kept on the device",
        lambda n, x: ~torch.isfinite(x).all(),
    ),
    Case("a clipped norm", "transfer", clipped(error_if_nonfinite=True), "Leave out error_if_nonfinite", clipped()),
    Case(
        "a distribution",
        "transfer",
        distribution(validate_args=True),  # the default, unless a library has changed it
        "validate_args=False",
        distribution(validate_args=False),
    ),
    Case("a branch", "transfer", branches, "where", lambda n, x: torch.where(x.sum() > 3, x * 2, x)),
    Case("an assertion", "transfer", asserted, "look every 10 steps", every_tenth(lambda x: asserted(0, x))),
    Case(
        "a loop until a value says so",
        "transfer",
        looped,
        "a fixed number of turns with a mask",
        lambda n, x: [x := torch.where(x.sum() > 60, x - 4, x) for _ in range(2)],
    ),
    Case("an inverse", "transfer", lambda n, x: torch.linalg.inv(x), "inv_ex", lambda n, x: torch.linalg.inv_ex(x)),
    Case(
        "a metric",
        "transfer",
        lambda n, x: (x.argmax(-1) == 1).sum().item(),
        "Add up on the device",
        lambda n, x: (x.argmax(-1) == 1).sum(),
    ),
    Case(
        "a tensor for the host",
        "transfer",
        lambda n, x: (x * 2).cpu(),
        "hand the tensor over once",
        lambda n, x: (x * 2).cpu() if n == STEPS - 1 else None,
    ),
    Case("a selection", "fallback", lambda n, x: x[x > 1].sum(), "where", lambda n, x: torch.where(x > 1, x, 0).sum()),
    Case(
        "eigenvalues",
        "fallback",
        lambda n, x: torch.linalg.eigvals(x + x.T),
        "torch.linalg.eigh",
        lambda n, x: torch.linalg.eigh(x + x.T),
        Fallback,
    ),
    Case(
        "counts of values",
        "fallback",
        lambda n, x: torch.bincount(x.flatten().long(), minlength=40),
        "a tensor of fixed length",
        lambda n, x: torch.zeros(40, device="xla").index_add_(0, x.flatten().long(), torch.ones(16, device="xla")),
    ),
]  # fmt: skip


def run(folder: Path, step: Callable[[int, Any], object]) -> Any:
    x = (torch.eye(4) + 1).to("xla")
    xr.sync(wait=True)
    with recording(folder / "run.log") as recorded:
        for n in range(STEPS):
            y = x + n
            step(n, y)
            xr.sync()
        xr.sync(wait=True)
    return recorded()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_advised_against(case: Case, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before = run(tmp_path / "before", case.before)
    found = [one for one in Run().feed_all(before.events).report("run.log").findings if one.kind == case.kind]
    assert any(case.words in one.advice for one in found), [one.advice for one in found]
    after = run(tmp_path / "after", case.after)
    assert len(after.of(case.counts)) * 4 <= len(before.of(case.counts))


def test_a_barrier_in_the_loop_makes_one_small_graph_of_many_turns(tmp_path: Path) -> None:
    def train(ends_turns: bool) -> Any:
        weight = torch.ones(4, 4, device="xla")
        xr.sync(wait=True)
        (folder := tmp_path / str(ends_turns)).mkdir()
        with recording(folder / "run.log") as recorded:
            for _ in range(24):
                for _ in range(5):
                    weight = weight @ weight * 0.1
                if ends_turns:
                    xr.sync()
            weight.sum().item()
        return recorded()

    without, ended = train(False), train(True)
    (finding,) = Run().feed_all(without.events).report("run.log").findings
    assert (finding.kind, "at the end of every turn" in finding.advice) == ("missing_barrier", True)
    assert max(one.ops for one in ended.of(Compile)) * 10 <= max(one.ops for one in without.of(Compile))
