"""A guard on an object names it where it has a name: the member of an Enum, the function, that was compiled for."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo

from tests.sources.observed import line_of, observe

# torch's own modules, which Dynamo imports while it compiles
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")


class Pooling(enum.Enum):
    MEAN = "mean"
    MAX = "max"


class Order(enum.IntEnum):
    FIRST = 1
    LAST = 2


def pooled(x: Any, options: Any) -> Any:
    return x.mean(1) if options["by"] is Pooling.MEAN else x.amax(1)


def ordered(x: Any, order: Order) -> Any:
    return x[0] if order is Order.FIRST else x[-1]


@pytest.mark.parametrize(
    ("function", "first", "then", "change"),
    [
        (pooled, {"by": Pooling.MEAN}, {"by": Pooling.MAX}, ("options['by']", "Pooling.MEAN", "Pooling.MAX")),
        (ordered, Order.LAST, Order.FIRST, ("order", "Order.LAST", "Order.FIRST")),
    ],
)  # fmt: skip
def test_a_member_of_an_enum_is_reported_with_the_one_it_was_compiled_for(
    tmp_path: Path, function: Any, first: Any, then: Any, change: tuple[str, str, str]
) -> None:
    def program() -> None:
        fast = compiled(function)
        for options in (first, then, first):
            fast(torch.ones(3, 2), options)

    found = observe(tmp_path, program)
    assert found.changes == [("value", *change)]
    (finding,) = found.findings()
    assert f"{change[0]}, a constant of the graph, changed from {change[1]} to {change[2]}" in finding.cause
    assert finding.place.line == line_of(function, "if")
    assert "choose outside the compiled function" in finding.advice


def applied(x: Any, model: Any) -> Any:
    return model.activation(x)


def smooth(x: Any) -> Any:
    return x.tanh()


def steep(x: Any) -> Any:
    return x.sign()


def test_a_function_that_was_swapped_is_reported_with_both_names(tmp_path: Path) -> None:
    model = SimpleNamespace(activation=smooth)

    def program() -> None:
        fast = compiled(applied)
        for model.activation in (smooth, steep):
            fast(torch.ones(3), model)

    found = observe(tmp_path, program)
    assert found.changes == [("object", "model.activation", "smooth", "steep")]


def named(**kwargs: Any) -> Any:
    return kwargs["ids"] * 2


def scaled(x: Any, k: Any) -> Any:
    return x * 2 if k is None else x * k


def nested(x: Any, inner: Any) -> Any:
    return inner(x)


def adding(k: int) -> Callable[[Any], Any]:
    def add(x: Any) -> Any:
        return x + k

    return add


@pytest.mark.parametrize(
    ("function", "calls", "changes"),
    [
        (named, [{"ids": torch.ones(2, 5)}, {"ids": torch.ones(2, 7)}], [("shape", "ids", "f32[2,5]", "f32[2,7]")]),
        (
            scaled,
            [{"x": torch.ones(3), "k": k} for k in (7, torch.ones(3), None)],
            [("type", "k", "int", "Tensor"), ("type", "k", "Tensor", "NoneType")],
        ),
        (
            nested,
            [{"x": torch.ones(3), "inner": adding(k)} for k in (2, 3)],
            [("value", "k", "2", "3")],
        ),
        (
            lambda x, d: sum(d.values(), x),
            [{"x": torch.ones(3), "d": dict.fromkeys(names, torch.ones(3))} for names in ("a", "ab")],
            [("value", "the keys of d", "{'a'}", "{'a', 'b'}")],
        ),
    ],
)  # fmt: skip
def test_old_and_new_are_of_one_sort(
    tmp_path: Path, function: Any, calls: list[dict[str, Any]], changes: list[tuple[str, str, str, str]]
) -> None:
    def program() -> None:
        fast = compiled(function)
        for one in calls:
            fast(**one)

    assert observe(tmp_path, program).changes == changes


class Scaled(torch.nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(this, x: Any) -> Any:
        return x * this.k


def test_a_version_for_each_object_is_known_by_the_first_argument_whatever_its_name(tmp_path: Path) -> None:
    def program() -> None:
        models = [Scaled(k) for k in (2, 3, 4)]
        for model in models:
            compiled(model)(torch.ones(3))

    found = observe(tmp_path, program)
    assert len(found.changes) == 2
    assert found.findings() == []


class Head(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sin()


class Heads(torch.nn.Module):
    """Heads, each of which takes as many rows as it is to: one after the other in a loop that says so, or not."""

    def __init__(self, says: bool) -> None:
        super().__init__()
        self.says, self.heads = says, torch.nn.ModuleList(Head() for _ in range(3))

    def forward(self, x: Any) -> Any:
        total = 0
        for rows, head in zip((5, 3, 4), self.heads, strict=True):
            if self.says:
                print(rows)
            total = total + head(x[:rows]).sum()
        return total


def test_what_only_a_break_has_compiled_by_itself_is_compiled_again_for_the_break(tmp_path: Path) -> None:
    def program(says: bool) -> Callable[[], None]:
        return lambda: compiled(Heads(says))(torch.ones(6, 2))

    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    assert observe(tmp_path / "whole", program(says=False)).counts.graphs == 1, "without the break there is one graph"
    torch._dynamo.reset()
    found = observe(tmp_path / "cut", program(says=True))
    (finding,) = found.findings()
    assert finding.kind == "graph_break"
    assert found.counts.graphs == 2, "the second version takes any number of rows"
    assert "in place of a part of one graph, and was compiled again once" in finding.cause
