"""A captured graph and what a backend made of it: what is wrong is told, what is rounding is not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from xlaprof.doctor.graphs import Difference, difference


def captured(function: Callable[..., Any], *inputs: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph that Dynamo captures of ``function``, and what it is called with."""
    torch._dynamo.reset()
    found: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def take(graph: torch.fx.GraphModule, given: list[Any]) -> Any:
        found.append((copy.deepcopy(graph), list(given)))
        return graph.forward

    torch._dynamo.optimize(take)(function)(*inputs)
    ((graph, given),) = found
    return graph, given


def told(function: Callable[..., Any], wrong: Callable[..., Any], *inputs: Any) -> Difference | None:
    graph, given = captured(function, *inputs)
    other, _ = captured(wrong, *inputs)
    return difference(graph, other, given)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.linspace(-2, 3, 48).reshape(6, 8).requires_grad_()


def test_the_same_is_the_same(x: torch.Tensor) -> None:
    assert told(lambda x: torch.relu(x).sum(), lambda x: torch.clamp(x, min=0).sum(), x) is None


def test_another_order_of_sums_is_rounding(x: torch.Tensor) -> None:
    assert told(lambda x: x.sum(), lambda x: x.sum(0).sum(), x) is None
    assert told(lambda x: torch.softmax(x, -1), lambda x: x.exp() / x.exp().sum(-1, keepdim=True), x) is None


def test_a_wrong_output_is_told_with_its_error(x: torch.Tensor) -> None:
    found = told(lambda x: (x.cos(), x.sin()), lambda x: (x.cos(), x.sin() * 1.02), x)
    assert found is not None
    assert found.what == "output 1"
    assert found.error == pytest.approx(0.02, rel=0.01)
    assert str(found).startswith("output 1 has a relative error of 2.0e-02 (without torch.compile ")


def test_a_wrong_gradient_of_a_right_output_is_told(x: torch.Tensor) -> None:
    found = told(lambda x: x * 2, lambda x: x + x.detach(), x)
    assert found is not None
    assert found.what.startswith("gradient of input")
    assert found.error == pytest.approx(0.5, rel=0.01)


def test_what_is_written_in_place_is_a_result() -> None:
    def right(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        seen.add_(x.sum())
        return x + 1

    def wrong(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        seen.add_(x.mean())
        return x + 1

    found = told(right, wrong, torch.arange(4.0), torch.zeros(()))
    assert found is not None
    assert found.what.startswith("input ")


def test_a_dtype_and_a_shape_are_results() -> None:
    x = torch.arange(6.0)
    found = told(lambda x: x.half(), lambda x: x * 1, x)
    assert found is not None
    assert found.what == "output 0 is float32[6], not float16[6]"
    found = told(lambda x: x[:3] + 0, lambda x: x * 1, x)
    assert found is not None
    assert found.what == "output 0 is float32[6], not float32[3]"


def test_nan_is_as_good_as_nan_and_not_as_a_number() -> None:
    x = torch.tensor([1.0, -1.0, 0.0])
    assert told(lambda x: x.log(), lambda x: x.log() * 1.0, x) is None
    found = told(lambda x: x.log(), lambda x: x.abs().log(), x)
    assert found is not None
    assert found.what == "output 0"


def test_integers_are_equal_but_for_ties() -> None:
    x = torch.arange(1000)
    assert told(lambda x: x * 2, lambda x: x + x, x) is None
    found = told(lambda x: x * 2, lambda x: x * 2 + (x > 900), x)
    assert found is not None
    assert found.what == "output 0 differs in 10% of its values"


def test_random_numbers_are_the_same_in_both() -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    assert told(drop, lambda x: drop(x) * 1, torch.ones(64)) is None


def test_a_gradient_that_is_nothing_but_rounding_is_no_fault() -> None:
    """The bias before a normalisation has a gradient of zero, and each way to compute it another error."""
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(3))
    bias = torch.zeros(4, requires_grad=True)

    def normal(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x + bias, None, None, training=True)

    def by_hand(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = x + bias
        return (y - y.mean(0)) / (y.var(0, unbiased=False) + 1e-5).sqrt()

    assert told(normal, by_hand, x, bias) is None


def test_the_programs_inputs_and_random_state_stay() -> None:
    graph, given = captured(lambda x: x.mul_(2), torch.ones(3))
    state = torch.get_rng_state()
    before: Sequence[torch.Tensor] = [one.clone() for one in given]
    difference(graph, graph, given)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(given, before, strict=True))
