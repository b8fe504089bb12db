"""What ``torch.compile`` gives up: the report says what runs as plain Python, and tells it from what is cut in two."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

import xlaprof
from tests.sources.observed import Observed, line_of, observing

# torch's own modules, which Dynamo imports while it compiles
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def observe(path: Path, function: Callable[[Any], Any]) -> Observed:
    with observing(path / "run.log") as found:
        fast = torch.compile(function, backend="eager")
        for _ in range(2):
            fast(torch.randn(4))
    return found[0]


@contextlib.contextmanager
def entered() -> Iterator[None]:
    yield


def in_a_loop(x: Any) -> Any:
    for i in range(3):
        x = x + 1
        print(i)
    return x * 2


def in_a_context_manager(x: Any) -> Any:
    y = x.sin()
    with entered():
        print("in")
        y = y.cos()
    return y * 2


def in_a_try_block(x: Any) -> Any:
    y = x.sin()
    try:
        print("in")
    finally:
        y = y + 1
    return y.cos()


def with_a_file(x: Any) -> Any:
    y = x.sin()
    with open("/dev/null", "w") as file:
        print("in", file=file)
    return y.cos()


def calls_a_loop(x: Any) -> Any:
    y = in_a_loop(x.sin())
    return y.cos()


@pytest.mark.parametrize(
    ("function", "half_way"),
    [
        (in_a_loop, "cannot leave a loop half-way"),
        (in_a_context_manager, "cannot leave a context manager half-way"),
        (in_a_try_block, "cannot go on behind it"),
    ],
)
def test_a_function_that_is_given_up(tmp_path: Path, function: Callable[[Any], Any], half_way: str) -> None:
    found = observe(tmp_path, function)
    (finding,) = found.findings()
    assert finding.place.line == line_of(function, "print(")
    assert finding.cause.startswith(f"Nothing of {function.__name__} is compiled, all of it runs as plain Python:")
    assert half_way in finding.cause
    (stat,) = found.report.torch_compile.functions
    assert (stat.name, stat.graphs, stat.plain) == (function.__name__, 0, ("all of it",))


@torch.library.custom_op("xlaprof_tests::dither", mutates_args=())
def dither(x: torch.Tensor) -> torch.Tensor:
    return (x * 16).round() / 16


def with_an_operator_of_its_own(x: Any) -> Any:
    y = x.sin()
    y = dither(y)  # here
    return y * 2


def test_a_function_whose_compilation_fails_silently(tmp_path: Path) -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        found = observe(tmp_path, with_an_operator_of_its_own)
    (finding,) = found.findings()
    assert (finding.kind, finding.place.code) == ("graph_break", "y = dither(y)  # here")
    assert "Nothing of with_an_operator_of_its_own is compiled, all of it runs as plain Python" in finding.cause
    assert "its compilation fails (There was no fake impl registered for <CustomOpDef(xlaprof_tests::" in finding.cause
    assert finding.advice.startswith("Give the operator a fake (its register_fake")
    dither.register_fake(torch.empty_like)  # as advised
    torch._dynamo.reset()
    (tmp_path / "again").mkdir()
    assert observe(tmp_path / "again", with_an_operator_of_its_own).findings() == []


def test_the_rest_of_a_function_that_is_given_up(tmp_path: Path) -> None:
    found = observe(tmp_path, with_a_file)
    (finding,) = found.findings()
    line = line_of(with_a_file, "open(")
    assert finding.place.line == line
    assert finding.cause.startswith(f"Nothing after line {line} of with_a_file is compiled:")
    (stat,) = found.report.torch_compile.functions
    assert (stat.graphs, stat.plain) == (1, (f"what follows line {line}",))


def test_the_function_around_one_that_is_given_up_is_cut_in_two(tmp_path: Path) -> None:
    found = observe(tmp_path, calls_a_loop)
    (finding,) = found.findings()
    assert finding.cause.startswith("Nothing of in_a_loop is compiled, ")
    assert "and calls_a_loop was cut in two here and is 2 graphs instead of one:" in finding.cause
    plain = {stat.name: stat.plain for stat in found.report.torch_compile.functions}
    assert plain == {"calls_a_loop": (), "in_a_loop": ("all of it",)}


class First(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        torch._dynamo.graph_break()
        return x + 1


class Second(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 3


def test_two_methods_of_one_name_are_told_apart(tmp_path: Path) -> None:
    with observing(tmp_path / "run.log") as recorded:
        models = [torch.compile(model, backend="eager") for model in (First(), Second())]
        for model in (*models, *models):  # the parts after the breaks are those of the right class
            model(torch.randn(4))
    found = recorded[0]
    causes = {finding.place.line: finding.cause for finding in found.findings()}
    assert causes[line_of(First, "graph_break")].startswith("First.forward was cut in two")
    assert causes[line_of(Second, "graph_break")].startswith("Second.forward was cut in two here once and is 2 graphs")
    stats = {stat.name: (stat.place.line, stat.graphs) for stat in found.report.torch_compile.functions}
    assert stats == {
        "First.forward": (line_of(First, "def forward"), 1),
        "Second.forward": (line_of(Second, "def forward"), 2),
    }


def selected(x: Any) -> Any:
    y = x.sin()
    return y[y > 0].sum()


def test_a_size_that_another_function_has_too_stays_with_its_break(tmp_path: Path) -> None:
    with observing(tmp_path / "run.log") as found:
        fast, other = (torch.compile(one, backend="eager", dynamic=False) for one in (selected, torch.sin))
        for size in (2, 3, 4, 5):
            fast(torch.tensor([1.0] * size + [-1.0] * (5 - size)))
            other(torch.ones(size))
    findings = {finding.kind: finding for finding in found[0].findings()}
    assert findings["graph_break"].place.line == line_of(selected, "y[y > 0]")
    assert "the size made here is a guard" in findings["graph_break"].cause
    assert findings["recompile"].count == 3
    assert all("___stack" not in finding.cause + finding.advice for finding in findings.values())


def counts(x: Any) -> Any:
    y = x.sin()
    counts.fingerprint = 1  # type: ignore[attr-defined]  # Dynamo cannot set attributes of functions
    return y.cos()


def test_advice_is_not_guessed_from_the_words_of_the_line(tmp_path: Path) -> None:
    (finding,) = observe(tmp_path, counts).findings()
    assert finding.place.line == line_of(counts, "fingerprint")
    assert "setattr() is not supported on type function" in finding.cause
    assert finding.advice.startswith("Move what this line does out of the compiled function")


class OfSites(torch.nn.Module):
    """A model with an entry for each site, whose features are made in a loop that no graph holds."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleDict({site: torch.nn.Linear(4, 1) for site in "abc"})

    def forward(self, x: Any, site: str) -> Any:
        y = in_a_loop(x.sin())
        return self.heads[site](y)


def test_an_argument_of_the_called_function_is_a_cause_beside_what_it_calls(tmp_path: Path) -> None:
    with observing(tmp_path / "run.log") as found:
        fast = torch.compile(OfSites(), backend="eager")
        for site in "abcabc":
            fast(torch.randn(4), site)
    findings = found[0].report.findings
    assert {one.kind for one in findings} == {"graph_break", "recompile"}
    [again] = (one for one in findings if one.kind == "recompile")
    assert "The Python value of site" in again.cause
    assert again.count == 2
    assert again.place.code == "return self.heads[site](y)"


def test_what_a_step_takes_since_a_limit_is_measured(tmp_path: Path) -> None:
    """A backend whose graphs cost nothing, a function that costs much: steps are slower once it runs eagerly."""
    matrix = torch.randn(200, 200)

    def product(x: Any, k: int) -> Any:
        for _ in range(10):
            x = torch.tanh(x @ matrix)
        return x.sum() * k

    compiled = torch.compile(product, backend=lambda graph, inputs: lambda *given: (torch.zeros(()),), dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2), observing(tmp_path / "run.log") as found:
        for k in (*[2] * 6, *[3] * 6, *[4] * 12):
            with xlaprof.StepTrace("train"):
                compiled(torch.ones(200, 200), k)
    (done,) = found
    assert done.counts.limits == 1
    (function,) = done.report.torch_compile.functions
    before, since = function.limit_steps_s
    assert since > 2 * before
    (finding,) = done.findings("recompile")
    assert "; a step took " in finding.cause
