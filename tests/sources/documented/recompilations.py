"""Graphs that are compiled again."""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo
from torch import nn

from tests.sources.documented.truth import Named, shows


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


def shifted(dune: Any) -> Any:
    return dune + 3


@shows("recompilation: another size", Named("recompile", "fast(torch.rand(rows, 2))", r"\[5,2\][\s\S]*mark_|mark_"))
def two_sizes() -> None:
    fast = compiled(shifted)
    for rows in (5, 7):
        fast(torch.rand(rows, 2))


@shows("recompilation: the limit", Named("recompile", "fast(torch.rand(rows))", "recompile_limit"))
def sizes_up_to_the_limit() -> None:
    with torch._dynamo.config.patch(recompile_limit=3):
        fast = compiled(shifted, dynamic=False)
        for rows in range(3, 9):
            fast(torch.rand(rows))


@shows("recompilation: a higher limit", Named("recompile", "fast(torch.rand(rows))", "mark_|dynamic"))
def sizes_under_a_higher_limit() -> None:
    with torch._dynamo.config.patch(recompile_limit=20):
        fast = compiled(shifted, dynamic=False)
        for rows in range(3, 9):
            fast(torch.rand(rows))


@shows("recompilation: numbers are constants", Named("recompile", "return ink * shade", "shade"))
def a_float_that_changes() -> None:
    def tinted(ink: Any, shade: float) -> Any:
        return ink * shade

    fast = compiled(tinted)
    for turn in range(6):
        fast(torch.rand(4), 0.25 + turn)


@shows(
    "recompilation: numbers and sizes",
    Named("recompile", "fast(torch.rand(turn), 0.25 + turn)", r"shape of ink[\s\S]*shade"),
)
def a_float_that_changes_with_a_size() -> None:
    def tinted(ink: Any, shade: float) -> Any:
        return ink * shade

    fast = compiled(tinted)
    for turn in range(2, 9):
        fast(torch.rand(turn), 0.25 + turn)


@shows("recompilation: a learning rate", Named("recompile", "optimizer.step()", r"\blr\b|learning rate"))
def a_learning_rate_that_falls() -> None:
    kiln = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(kiln.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

    def lesson(clay: Any) -> None:
        optimizer.zero_grad(True)
        kiln(clay).sum().backward()
        optimizer.step()
        schedule.step()

    fast = compiled(lesson)
    for _ in range(6):
        fast(torch.rand(5, 4))


@shows("recompilation: a learning rate in a tensor")
def a_learning_rate_in_a_tensor() -> None:
    kiln = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(kiln.parameters(), lr=torch.tensor(0.02))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, torch.tensor(0.8))  # type: ignore[arg-type]

    def lesson(clay: Any) -> None:
        optimizer.zero_grad(True)
        kiln(clay).sum().backward()
        optimizer.step()
        schedule.step()

    fast = compiled(lesson)
    for _ in range(6):
        fast(torch.rand(5, 4))


@shows(
    "recompilation: a break that keeps a large graph",
    Named("recompile", "return dough * salt", "salt"),
    also=(Named("graph_break", "torch._dynamo.graph_break()", "graph_break"),),
)
def a_break_before_what_is_compiled_again() -> None:
    def kneaded(dough: Any) -> Any:
        return dough.sin().cos().tan()

    def baked(dough: Any, salt: float) -> Any:
        dough = kneaded(dough)
        torch._dynamo.graph_break()
        return dough * salt

    fast = compiled(baked)
    for salt in (0.5, 1.5, 2.5):
        fast(torch.rand(4), salt)


@shows("reducing recompilation: a size without dynamic shapes", Named("recompile", "fast(torch.rand(", r"\[10\]|mark_"))
def a_size_that_is_read() -> None:
    def scaled(net: Any) -> Any:
        return net * net.size(0)

    fast = compiled(scaled, dynamic=False)
    for knots in (10, 20, 30, 40):
        fast(torch.rand(knots))


@shows(
    "reducing recompilation: a specialization",
    Named("recompile", "fast(torch.rand(width))", r"span.size\(0\) == 12"),
    Named("recompile", "fast(torch.rand(width))", "<= 32"),
)
def a_condition_on_a_size() -> None:
    def arched(span: Any) -> Any:
        if span.size(0) == 12:
            return span * 4
        if span.size(0) <= 32:
            return span * 40
        return span * span.size(0)

    fast = compiled(arched, dynamic=True)
    for width in (12, 22, 32, 42, 52):
        fast(torch.rand(width))


@shows("zero-one specialization", Named("recompile", "fast(torch.rand(guests, 3))", r"\[1,3\]|size of 0 or 1"))
def a_batch_of_one() -> None:
    fast = compiled(shifted, dynamic=True)
    for guests in (6, 1, 5):
        fast(torch.rand(guests, 3))


@shows("user annotations: maybe_mark_dynamic, and a condition", Named("recompile", "fast(sheet)", "size|shape"))
def a_marked_size_in_a_condition() -> None:
    def rolled(sheet: Any) -> Any:
        return sheet * 2 if sheet.size(0) > 8 else sheet * 3

    fast = compiled(rolled)
    for thickness in (4, 6, 10, 12):
        sheet = torch.rand(thickness, 2)
        torch._dynamo.maybe_mark_dynamic(sheet, 0)
        fast(sheet)


@shows("automatic dynamic: a Python integer", Named("recompile", "return bead * count", "count"))
def an_integer_that_changes() -> None:
    def strung(bead: Any, count: int) -> Any:
        return bead * count

    fast = compiled(strung)
    for count in (3, 4, 6, 9):
        fast(torch.rand(4), count)
