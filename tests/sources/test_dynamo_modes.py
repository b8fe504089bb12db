"""A version for gradients that nobody asks for: ``grad_mode`` is a guard, and each thread has its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.sources.observed import line_of, observe
from xlaprof.events import DynamoCompile

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def ready() -> Any:
    return torch.compile(nn.Linear(4, 3).eval(), backend="aot_eager")


def in_a_thread(serve: Callable[[], None]) -> None:
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()


def test_a_warm_up_that_no_thread_profits_from_is_told_with_its_line(tmp_path: Path) -> None:
    model = ready()

    def warm_up() -> None:
        with torch.no_grad():
            model(torch.rand(2, 4))

    def serve() -> None:
        for _ in range(3):
            model(torch.rand(2, 4))

    seen = observe(tmp_path, lambda: (warm_up(), in_a_thread(serve)))
    (finding,) = seen.findings()
    assert (finding.kind, finding.place.line, finding.count) == ("recompile", line_of(serve, "model("), 1)
    assert (finding.change.old, finding.change.new) == ("False", "True")
    warm = f"{Path(__file__).name}:{line_of(warm_up, 'model(')}"
    assert f"the version before was made for another thread's call at {warm}" in finding.cause
    assert "enter no_grad() within the function that a thread runs" in finding.advice
    assert line_of(warm_up, "model(") in [place.line for place in finding.also]


def test_with_no_grad_in_the_thread_one_version_serves_all(tmp_path: Path) -> None:
    model = ready()

    @torch.no_grad()
    def serve() -> None:
        for _ in range(3):
            model(torch.rand(2, 4))

    seen = observe(tmp_path, lambda: (serve(), in_a_thread(serve)))
    assert seen.counts.compiles == 1
    assert seen.findings() == []


def test_a_warm_up_with_gradients_is_told_in_one_thread_too(tmp_path: Path) -> None:
    model = ready()

    def program() -> None:
        model(torch.rand(2, 4))
        with torch.no_grad():
            for _ in range(3):
                model(torch.rand(2, 4))  # served

    (finding,) = observe(tmp_path, program).findings()
    assert finding.place.line == line_of(program, "# served")
    assert f"made for the call at {Path(__file__).name}:{line_of(program, 'model(')}" in finding.cause


@pytest.mark.parametrize("trains_first", [True, False])
def test_training_and_evaluation_have_a_version_each(tmp_path: Path, trains_first: bool) -> None:
    model = ready()

    def trains() -> None:
        model(torch.rand(2, 4)).sum().backward()

    def evaluates() -> None:
        with torch.no_grad():
            model(torch.rand(2, 4))

    both = (trains, evaluates) if trains_first else (evaluates, trains)
    seen = observe(tmp_path, lambda: [(one(), in_a_thread(one)) for one in both])
    assert seen.counts.recompiles == 1
    assert seen.findings() == []


def test_with_compiled_autograd_nobody_knows_whose_the_backward_graphs_are(tmp_path: Path) -> None:
    model = ready()

    def program() -> None:
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
            for _ in range(2):
                model(torch.rand(2, 4)).sum().backward()
        with torch.no_grad():
            model(torch.rand(2, 4))

    seen = observe(tmp_path, program)
    assert any(event.compile.startswith("!") for event in seen.of(DynamoCompile))
    assert seen.findings("recompile") == []


def test_a_backend_that_makes_no_backward_graphs_says_nothing(tmp_path: Path) -> None:
    model = torch.compile(nn.Linear(4, 3).eval(), backend="eager")

    def program() -> None:
        model(torch.rand(2, 4)).sum().backward()
        with torch.no_grad():
            model(torch.rand(2, 4))

    assert observe(tmp_path, program).findings() == []


@pytest.mark.parametrize("leaf", [False, True])
def test_what_a_loop_begins_with_is_to_have_a_gradient_like_what_it_hands_on(leaf: bool, tmp_path: Path) -> None:
    """The state of a recurrence begins as zeros, which have none; detached, the others would teach it nothing."""

    def program() -> None:
        cell = torch.compile(lambda state, weight: (state + weight).tanh(), backend="eager")
        weight, state = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=leaf)
        for _ in range(4):
            state = cell(state, weight)
        state.sum().backward()
        assert weight.grad is not None

    found = observe(tmp_path, program).findings()
    assert [(one.change.old, one.change.new) for one in found] == [("False", "True")] * (not leaf)
    for one in found:
        assert "state.requires_grad_() where it has none yet, as what a loop begins with" in one.advice
