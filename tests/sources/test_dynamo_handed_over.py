"""What a graph break hands over to the rest of its function: what follows from it belongs to the break.

What the rest uses besides, attributes and arguments, has findings of its own, under the program's names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.sources.observed import Observed, line_of, observe
from xlaprof.events import DynamoCompile, Recompile
from xlaprof.text.quantities import times

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def said(found: Observed) -> str:
    texts = ((one.cause, one.advice, one.remedy, *one.evidence) for one in found.report.findings)
    return "\n".join(text for parts in texts for text in parts)


def calling(function: Callable[..., Any], *calls: Callable[[], tuple[Any, ...]]) -> Callable[[], None]:
    def program() -> None:
        fast = torch.compile(function, backend="eager")
        for arguments in calls:
            fast(*arguments())

    return program


def logged(x: Any, history: Any) -> Any:
    history.append((x * 2).sum().item())
    return x + 1


class Tracker(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lengths: dict[str, float] = {}

    def forward(self, x: Any) -> Any:
        self.lengths.setdefault("longest", x.norm().item())
        return x.cos() * 2


def rows(count: int) -> Any:
    return torch.tensor([1.0] * count + [-1.0] * (9 - count))


def kept(x: Any) -> Any:
    y = x.sin()
    best = y[y > 0]
    print(len(y))
    return best.sum() + best.exp().mean()


def paired(x: Any) -> Any:
    keep = x > 0
    both = torch.stack([x[keep].sin(), x.cos()[keep]])
    return both * x.exp()[keep]


def test_a_method_that_a_break_separates_from_its_call_is_named(tmp_path: Path) -> None:
    history: list[float] = []
    found = observe(tmp_path, calling(logged, *[lambda: (torch.ones(3), history)] * 4))
    (finding,) = found.findings("graph_break")
    assert finding.place.line == line_of(logged, ".item()")
    assert "history.append, kept over the break, is another object in each call" in finding.cause
    assert {one.place.line for one in found.findings()} == {line_of(logged, ".item()")}
    assert "___" not in said(found)


def test_of_an_attribute_too(tmp_path: Path) -> None:
    tracker = Tracker()
    found = observe(tmp_path, calling(tracker, *[lambda: (torch.ones(3),)] * 4))
    (finding,) = found.findings("graph_break")
    assert "self.lengths.setdefault, kept over the break" in finding.cause
    assert "___" not in said(found)


@pytest.mark.parametrize("function", [kept, paired])
def test_a_size_that_was_selected_belongs_to_the_break_wherever_it_arrives(
    tmp_path: Path, function: Callable[[Any], Any]
) -> None:
    found = observe(tmp_path, calling(function, *(lambda count=count: (rows(count),) for count in (3, 5, 6, 4))))
    assert found.counts.recompiles
    assert {finding.kind for finding in found.findings()} == {"graph_break"}
    selects = line_of(function, "= y[y" if function is kept else "x[keep].sin")
    by_line = {finding.place.line: finding for finding in found.findings()}
    assert "the size made here is a guard" in by_line[selects].cause
    assert "___" not in said(found)


def test_lines_that_select_by_one_mask_are_one_finding(tmp_path: Path) -> None:
    (finding,) = observe(tmp_path, calling(paired, lambda: (rows(3),))).findings()
    first = line_of(paired, "x[keep].sin")
    assert (finding.place.line, [place.line for place in finding.also]) == (first, [first + 1])
    assert f"here and in line {first + 1}" in finding.cause
    assert "how many elements a mask selects (aten::nonzero) depends on its values" in finding.cause


def counted(x: Any) -> Any:
    number = int(x.sum().item())
    y = x * 2
    print("counted")
    return y * number


def test_a_variable_comes_from_the_break_that_made_it_and_not_from_one_it_outlives(tmp_path: Path) -> None:
    found = observe(tmp_path, calling(counted, *(lambda v=v: (torch.full((3,), v),) for v in (1.0, 2.0, 3.0))))
    causes = {finding.place.line: finding.cause for finding in found.findings()}
    assert "the value read here is a guard" in causes[line_of(counted, ".item()")]
    assert "compiled again" not in causes[line_of(counted, "print")]


def test_what_an_argument_holds_is_named_as_the_program_reaches_it(tmp_path: Path) -> None:
    def summed(batch: Any) -> Any:
        y = batch["x"] + 1
        print("summed")
        return y.sum() + batch["y"]

    sizes = (lambda n=n: ({"x": torch.ones(3), "y": torch.ones(n)},) for n in (3, 5, 6))
    (finding,) = observe(tmp_path, calling(summed, *sizes)).findings("recompile")
    assert "The shape of batch['y'] changed" in finding.cause
    assert "maybe_mark_dynamic(batch['y'], 0)" in finding.advice


class Noisy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.clipped, self.noise = 0.0, 0.0

    def forward(self, x: Any) -> Any:
        self.clipped = self.clipped + (x > 2).sum().item()
        return x * (1 - self.noise)


def scaled(x: Any, options: Any) -> Any:
    options.peak = float(x.max())
    return x / options.scale


def test_an_attribute_that_changes_is_no_value_of_the_break(tmp_path: Path) -> None:
    noisy = Noisy()

    def set_noise(value: float) -> tuple[Any, ...]:
        noisy.noise = value
        return (torch.zeros(3),)

    found = observe(tmp_path, calling(noisy, *(lambda v=v: set_noise(v) for v in (0.0, 0.1, 0.2, 0.3))))
    (finding,) = found.findings("recompile")
    assert finding.place.line == line_of(Noisy.forward, "1 - self.noise")
    assert "The Python value of self.noise, a constant of the graph, changed from 0.0 to 0.1" in finding.cause
    (broke,) = found.findings("graph_break")
    assert "compiled again" not in broke.cause


def test_nor_is_that_of_an_argument(tmp_path: Path) -> None:
    options = SimpleNamespace(peak=0.0, scale=1)

    def scale(value: int) -> tuple[Any, ...]:
        options.scale = value
        return torch.ones(3), options

    found = observe(tmp_path, calling(scaled, *(lambda v=v: scale(v) for v in (1, 2, 3))))
    (finding,) = found.findings("recompile")
    assert finding.place.line == line_of(scaled, "options.scale")
    assert "The Python value of options.scale" in finding.cause
    assert "___" not in said(found)


class Limiter(torch.nn.Module):
    """Tells how loud it was."""

    def forward(self, sound: Any) -> Any:
        print(end="")
        return sound.clamp(-1, 1) * 0.9


class Desk(torch.nn.Module):
    """Each of its channels is limited, in its own width."""

    def __init__(self) -> None:
        super().__init__()
        self.voice, self.organ = torch.nn.Linear(4, 6), torch.nn.Linear(6, 8)
        self.limit_voice, self.limit_organ = Limiter(), Limiter()

    def forward(self, sound: Any) -> Any:
        voice = self.limit_voice(self.voice(sound))
        return self.limit_organ(self.organ(voice))


def test_a_function_that_only_a_break_compiles_by_itself_is_its_finding_with_all_its_versions(tmp_path: Path) -> None:
    found = observe(tmp_path, calling(Desk(), lambda: (torch.ones(3, 4),)))
    again = list(found.of(Recompile))
    assert again, "the limiter has a version for each of the widths"
    (finding,) = found.findings()
    assert (finding.kind, finding.place.line) == ("graph_break", line_of(Limiter, "print("))
    assert (
        f"Limiter.forward is compiled by itself, in place of a part of one graph, and was compiled again "
        f"{times(len(again))}"
    ) in finding.cause
    versions = {one.compile for one in again}
    took = sum(one.dur for one in found.of(DynamoCompile) if one.compile in versions) / 1e9
    assert finding.cost_s > took
    charges = {one.what for one in found.report.torch_compile.charges}
    assert "break" in charges
    assert "necessary" not in charges


def test_what_the_program_calls_itself_has_a_graph_of_its_own_whatever_breaks(tmp_path: Path) -> None:
    found = observe(tmp_path, calling(Limiter(), lambda: (torch.ones(3, 4),), lambda: (torch.ones(3, 4, 2),)))
    assert {one.kind for one in found.findings()} == {"graph_break", "recompile"}
