"""Advice on graph breaks is tried: the program as it is, and as the advice says."""

from __future__ import annotations

import copy
import gc
import logging
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo

import xlaprof.runtime as xr
from tests.sources.test_dynamo_advice import Case, Chosen, T, observe

# torch's own modules, which Dynamo imports while it compiles
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def cut(*lines: Callable[[Any], Any], **config: Any) -> Callable[[], Any]:
    """A program that compiles a function in whose middle there is one line, for each of these lines."""

    def program() -> None:
        for line in lines:

            def function(x: Any, line: Any = line) -> Any:
                y = x.sin()
                found = line(y)
                return (y if found is None else y * found).cos()

            with torch._dynamo.config.patch(**config):
                fast = torch.compile(function, backend="eager")
                for _ in range(2):
                    fast(torch.randn(4))

    return program


def converges(how: str) -> Callable[[], Any]:
    """A program that halves until little is left: asked in the function, so often, or with one turn compiled."""

    def halved(x: Any) -> Any:
        return x * 0.5 + 0.1

    def solved(x: Any) -> Any:
        for _ in range(6):
            x = halved(x)
            if how == "asks" and (x - 0.2).abs().max() < 0.3:
                break
        return x

    def program() -> None:
        fast = torch.compile(halved if how == "turn" else solved, backend="eager")
        for _ in range(2):
            x = torch.ones(4)
            for _ in range(3 if how == "turn" else 1):
                x = fast(x)

    return program


def relaxed(how: str) -> Callable[[], Any]:
    """A program of five rounds with a branch in each round, or that a value ends: a while's, or by return."""

    def damped(x: Any) -> Any:
        for at in range(5):
            x = x * 0.9
            if how == "branch":
                if x.abs().max() > 2:
                    x = x / 2
            elif how == "chosen":
                x = torch.where(x.abs().max() > 2, x / 2, x)
            elif how == "returns" and at > 1 and x.abs().max() < 2:
                return x
        return x

    def waited(x: Any) -> Any:
        while x.abs().max() > 2:
            x = x * 0.9
        return x

    def program() -> None:
        fast = torch.compile(waited if how == "while" else damped, backend="eager")
        for _ in range(2):
            fast(torch.linspace(0, 2.7, 4))

    return program


def gathered(how: str) -> Callable[[], Any]:
    """A program that adds up the rows of each of five groups: group by group, or of all at once."""

    def summed(rows: Any, group: Any) -> Any:
        sums = torch.zeros(5, 3)
        if how == "at once":
            return sums.index_add_(0, group, rows)
        for k in range(5):
            members = rows[group == k]
            sums[k] = members.sum(0)
        return sums

    def program() -> None:
        fast = torch.compile(summed, backend="eager")
        for _ in range(2):
            fast(torch.ones(8, 3), torch.arange(8) % 5)

    return program


def padded(how: str) -> Callable[[], Any]:
    """A program that sums rows up to their lengths: to the longest, read or passed, or to the whole width."""

    def summed(x: Any, lengths: Any, longest: int) -> Any:
        if how == "read":
            longest = int(lengths.max())
        x = x[:, :longest]
        return (x * (torch.arange(longest) < lengths.unsqueeze(1))).sum(1)

    def program() -> None:
        fast = torch.compile(summed, backend="eager", dynamic=True if how == "passed" else None)
        for n in (5, 7, 6):
            fast(torch.ones(3, 8), torch.tensor([2, n, 4]), n if how == "passed" else 8)

    return program


def whole(function: Any) -> Callable[[], Any]:
    """A program that compiles a function and calls it twice, with what is left of the line outside."""

    def program() -> None:
        fast = torch.compile(function, backend="eager")
        for _ in range(2):
            print(fast(torch.randn(4)).sum().item())

    return program


def fine(x: Any) -> Any:
    return x.sin().cos()


def branches(x: Any) -> Any:
    y = x.sin()
    if y.sum() > 0:
        y = y * 2
    return y.cos()


def branches_on_the_device(x: Any) -> Any:
    y = x.sin()
    return torch.where(y.sum() > 0, y * 2, y).cos()


def branches_in_the_graph(x: Any) -> Any:
    y = x.sin()
    return torch.cond(y.sum() > 0, lambda y: y * 2, lambda y: y.clone(), (y,)).cos()


def gathers(how: str) -> Callable[[], Any]:
    """A program that sums what lies above a bound: if there is any, for each of it, by its number, or with a mask."""

    def asked(x: Any) -> Any:
        high = x[x > 0.5]
        total = x.new_zeros(())
        many = len(high)
        if many > 2:
            total = high.sum()
        return total.cos()

    def looped(x: Any) -> Any:
        total = x.new_zeros(())
        high = (
            x.sin()[
                x > 0.5
            ]
        )  # fmt: skip
        for one in high:
            total = total + one
        return total.cos()

    def counted(x: Any) -> Any:
        count = int((x > 0.5).sum())
        for _ in range(count):
            x = x * 1.5
        return x

    def masked(x: Any) -> Any:
        high = x > 0.5
        return torch.where(high.sum() > 2, (x * high).sum(), 0.0).cos()

    function = {"asked": asked, "looped": looped, "counted": counted, "masked": masked}[how]

    def program() -> None:
        fast = torch.compile(function, backend="eager")
        for n in (4, 2):
            fast(torch.arange(5.0) / n)

    return program


log = logging.getLogger("advice")


@torch.compiler.disable
def disabled(y: Any) -> Any:
    return y * 2


def generated(x: Any) -> Iterator[Any]:
    yield x.sin()


def written(y: Any) -> None:
    with open(os.devnull, "w") as file:
        file.write("x")


def locked(y: Any) -> Any:
    with threading.Lock():
        return y * 2


class Wrapped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Chosen("sin")

    @torch.compiler.disable
    def forward(self, x: Any) -> Any:
        return self.inner(x)


def on_each_call(model: Any) -> Callable[[], Any]:
    def program() -> None:
        fast = torch.compile(model, backend="eager")
        fast(T(3))

    return program


OWN = torch.Generator()


def drawn_before() -> None:
    """The noise of ``cut``'s line comes with the call."""
    fast = torch.compile(lambda x, noise: (x.sin() * noise).cos(), backend="eager")
    for _ in range(2):
        fast(torch.randn(4), torch.rand((), generator=OWN))


BREAKS = [
    Case("generator", cut(lambda y: torch.rand((), generator=OWN)), "Draw what this line draws before", drawn_before),
    Case(
        "generator of PyTorch's",
        cut(lambda y: torch.rand((), generator=OWN)),
        "the one that torch.manual_seed() seeds",
        cut(lambda y: torch.rand(())),
    ),
    Case("barrier", cut(lambda y: xr.sync()), "Call the barrier after the compiled function", whole(fine)),
    Case("nothing", on_each_call(Wrapped()), "Compile the module inside instead", on_each_call(Chosen("sin"))),
    Case("print", cut(lambda y: print("y")), "Remove the print", whole(fine)),
    Case("print after", cut(lambda y: print("y")), "print after it returns", whole(fine)),
    Case("file", cut(written), "Open and read files outside", whole(fine)),
    Case("context manager", cut(locked), "around the call", whole(fine)),
    Case("item", cut(lambda y: y.sum().item()), "Keep the value a tensor", cut(lambda y: y.sum())),
    Case(
        "item in the graph",
        cut(lambda y: y.sum().item()),
        "capture_scalar_outputs = True",
        cut(lambda y: y.sum().item(), capture_scalar_outputs=True),
    ),
    Case("convergence", converges("asks"), "Run the loop a fixed number of times", converges("fixed")),
    Case("end by return", relaxed("returns"), "Run the loop a fixed number of times", relaxed("fixed")),
    Case("while", relaxed("while"), "Run the loop a fixed number of times", relaxed("fixed")),
    Case("branch in a loop", relaxed("branch"), "Replace the condition on a tensor by torch.where", relaxed("chosen")),
    Case("one turn", converges("asks"), "compile only what one turn of it does", converges("turn")),
    Case("length", padded("read"), "Take the largest size in each call", padded("whole")),
    Case("length that is passed", padded("read"), "pass it as an int", padded("passed")),
    Case("float()", cut(lambda y: float(y.sum())), "Keep the value a tensor", cut(lambda y: y.sum())),
    Case("tolist()", cut(lambda y: y.tolist()[0]), "Compute with the tensor itself", cut(lambda y: y[0])),
    Case("tolist() outside", cut(lambda y: sorted(y.tolist())[0]), "end the compiled function before", whole(fine)),
    Case("branch", whole(branches), "Replace the condition on a tensor by torch.where", whole(branches_on_the_device)),
    Case("torch.cond", whole(branches), "torch.cond", whole(branches_in_the_graph)),
    Case("mask", cut(lambda y: y[y > 0].sum()), "multiplication by the mask", cut(lambda y: (y * (y > 0)).sum())),
    Case(
        "mask in the graph",
        cut(lambda y: y[y > 0].sum()),
        "capture_dynamic_output_shape_ops = True",
        cut(lambda y: y[y > 0].sum(), capture_dynamic_output_shape_ops=True),
    ),
    Case("mask in a loop", gathered("in turn"), "Compute it for all turns of the loop at once", gathered("at once")),
    Case("size that is asked", gathers("asked"), "instead of selecting): line ", gathers("masked")),
    Case("time", cut(lambda y: time.time()), "before or after the compiled function", whole(fine)),
    Case(
        "method of a ufunc",
        cut(lambda y: torch.as_tensor(np.add.reduce(y.numpy()))),
        "Call np.sum in place of np.add.reduce",
        cut(lambda y: torch.as_tensor(np.sum(y.numpy()))),
    ),
    Case("random", cut(lambda y: random.random()), "torch.rand", cut(lambda y: torch.rand(()))),
    Case("warning", cut(lambda y: warnings.warn("y", stacklevel=1)), "Warn before or after", whole(fine)),
    Case("logger", cut(lambda y: log.warning("y")), "Log after", whole(fine)),
    Case(
        "logger ignored",
        cut(lambda y: log.warning("y")),
        "ignore_logging_functions",
        cut(lambda y: log.warning("y"), ignore_logging_functions={log.warning}),
    ),
    Case("builtin", cut(lambda y: sorted(y)[0]), "before or after", cut(lambda y: torch.sort(y)[0][0])),
    Case("C function", cut(lambda y: gc.collect() * 0 + 1), "Move the call out", whole(fine)),
    Case("deepcopy", cut(copy.deepcopy), "tensor.clone()", cut(torch.clone)),
    Case("disabled", cut(disabled), "Remove torch.compiler.disable", cut(lambda y: y * 2)),
    Case("asked for", cut(lambda y: torch._dynamo.graph_break()), "Remove the call", whole(fine)),
]


@pytest.mark.parametrize("case", BREAKS, ids=[case.name for case in BREAKS])
def test_what_is_advised_against_graph_breaks(case: Case, tmp_path: Path) -> None:
    before = observe(tmp_path / "before.log", case.before)
    advice = " ".join(finding.advice for finding in before.findings("graph_break"))
    assert case.words in advice
    torch._dynamo.reset()
    after = observe(tmp_path / "after.log", case.after)
    assert after.findings() == []
    assert after.counts.graphs == 1


@pytest.mark.parametrize(
    ("how", "asks", "option"),
    [
        ("asked", "if many > 2:", "capture_dynamic_output_shape_ops"),
        ("looped", "for one in high:", "capture_dynamic_output_shape_ops"),
        ("counted", "for _ in range(count):", "capture_scalar_outputs"),
    ],
)
def test_no_option_is_advised_for_what_python_asks_for(how: str, asks: str, option: str, tmp_path: Path) -> None:
    with torch._dynamo.config.patch(**{option: True}):  # the truth: with it the graph breaks as well
        assert observe(tmp_path / "option.log", gathers(how)).findings("graph_break")
    torch._dynamo.reset()
    (finding,) = observe(tmp_path / "run.log", gathers(how)).findings("graph_break")
    assert option not in finding.advice
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.strip() == asks)
    assert f"line {line} asks" in finding.advice or how == "counted", finding.advice
