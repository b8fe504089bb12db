"""Other work that ends at the same line: another module's turn, another phase of the program."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.analysis.run import Run
from xlaprof.events import Compile
from xlaprof.runtime.trace import source

from .recorded_programs import RecordedProgram, record


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], object]], RecordedProgram]:
    return lambda story: record(tmp_path / "run.log", story)


def batch(rows: int, width: int) -> torch.Tensor:
    return torch.ones(rows, width)


def test_a_parameter_of_another_shape_is_reported_where_it_is_used_and_not_where_the_model_was_moved(
    recorded: Callable,
) -> None:
    heads = nn.ModuleList([nn.Linear(23, 2), nn.Linear(23, 5)]).to("xla")
    xr.sync()

    def story() -> None:
        for head in heads:
            out = head(batch(4, 23).to("xla")).sum()
            xr.sync()
            del out

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.made) == ("shape", 0)
    assert run.code(change.stack) == 'out = head(batch(4, 23).to("xla")).sum()'


def test_a_step_that_updates_other_parameters_is_another_models_turn(recorded: Callable) -> None:
    models = nn.Linear(43, 3).to("xla"), nn.Linear(43, 3).to("xla")
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]

    def story() -> None:
        for n in range(4):
            loss = models[n % 2](batch(4, 43).to("xla"))
            (loss.exp().sum() if n % 2 else loss.square().mean()).backward()
            optimizers[n % 2].step()
            optimizers[n % 2].zero_grad()
            xr.sync()
            del loss

    assert not any(change.added or change.removed for change in recorded(story).changes)


def test_models_that_are_tried_in_turn_are_no_path_of_one_another(recorded: Callable) -> None:
    """A table of two: each is trained and evaluated by the same lines, most of whose operations both have."""

    class Tall(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.top = nn.Linear(37, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.top(x.roll(1, 0).sinh())

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(37, 5), nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(self.inner(x).relu())

    def fit(model: nn.Module) -> None:
        x, weight = batch(6, 37).to("xla"), batch(6, 1).to("xla")
        optimizer = torch.optim.SGD(model.to("xla").parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            each = (model(x).log_softmax(1) * weight).exp().square().mean(1).sqrt()
            (each.sum() / weight.sum()).backward()
            optimizer.step()
            xr.sync()
        with torch.no_grad():
            found = ((model(x).argmax(1) == 1).float() * (1 - weight[:, 0])).sum() / weight.sum()
            found.item()

    def story() -> None:
        for made in (Tall, Deep):
            fit(made())

    run = recorded(story)
    assert not [change for change in run.changes if change.removed]


def test_a_model_is_known_though_one_that_is_gone_had_its_id() -> None:
    gone, model = nn.Linear(2, 2), nn.Linear(29, 3).to("xla")
    source.roots[id(model)] = weakref.ref(gone)
    del gone
    model(batch(2, 29).to("xla")).sum().item()
    assert source.roots[id(model)]() is model


def test_a_step_that_updates_some_of_the_same_parameters_is_no_other_models_turn(recorded: Callable) -> None:
    one, two = nn.Linear(47, 3).to("xla"), nn.Linear(47, 3).to("xla")
    optimizers = [torch.optim.SGD(some, lr=0.1) for some in ([*one.parameters(), *two.parameters()], two.parameters())]

    def story() -> None:
        for n in range(4):
            x = batch(4, 47).to("xla")
            ((two(x) + one(x)).exp().sum() if n % 2 else (one(x) * two(x)).sum()).backward()
            optimizers[n % 2].step()
            optimizers[0].zero_grad()
            xr.sync()

    assert any(change.added or change.removed for change in recorded(story).changes)


def test_a_phase_that_ends_at_the_line_of_another_is_work_of_its_own(recorded: Callable) -> None:
    model = nn.Linear(51, 3).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        model(batch(4, 51).to("xla")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def evaluate() -> torch.Tensor:
        return model(batch(4, 51).to("xla")).argmax(1).sum()

    def sample() -> torch.Tensor:
        return batch(4, 51).to("xla").cumsum(0).tanh()

    def story() -> None:
        for phase in (train, train, evaluate, evaluate, sample, train):
            out = phase()
            xr.sync()
            del out

    assert not any(change.added or change.removed for change in recorded(story).changes)


def test_work_of_a_branch_is_told_at_the_branch_though_its_function_is_called_at_one_line(recorded: Callable) -> None:
    x = torch.ones(3, 57).to("xla")
    xr.sync()

    def step(n: int) -> torch.Tensor:
        y = x.sinh()
        if n % 2:
            y = y.flip(1)
            y = y.cosh() + 1.5
        return y.tanh()

    def story() -> None:
        for n in range(2):
            out = step(n)
            xr.sync()
            del out

    run = recorded(story)
    change = run.changes[-1]
    assert (run.code(change.stack), run.code(change.condition)) == ("y = y.flip(1)", "if n % 2:")


LIBRARY = """
import torch
import xlaprof.runtime as xr

def fit(model, optimizer, batches):
    for n, x in enumerate(batches, 1):
        loss = model(x.to("xla")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if n < len(batches):
            xr.sync()
    xr.sync()
"""


def test_the_last_batch_of_a_librarys_loop_is_compared_though_another_barrier_ends_it(
    recorded: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "fits_models.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    fits_models = importlib.import_module("fits_models")
    model = nn.Linear(53, 3).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    run = recorded(lambda: fits_models.fit(model, optimizer, [batch(4, 53)] * 5 + [batch(2, 53)]))
    change = run.changes[-1]
    assert (change.what, change.old, change.new) == ("shape", "f32[4,53]", "f32[2,53]")
    (finding,) = (one for one in Run().feed_all(run.events).report().findings if one.kind == "recompile")
    assert finding.count == 1
    assert "The shape (dimension 0) of x" in finding.cause


def test_a_size_that_is_meant_bears_no_part_of_what_else_has_its_graph_compiled_again(recorded: Callable) -> None:
    """Two sizes take turns; after each tenth step a sum is emptied, which begins the next step's graph."""
    weight, total = torch.ones(6, 6).to("xla"), torch.zeros(()).to("xla")
    xr.sync()

    def story() -> None:
        for step in range(60):
            total.add_((batch(16 if (step // 3) % 2 else 32, 6).to("xla") @ weight).tanh().sum())
            xr.sync()
            if step % 10 == 9:
                total.zero_()  # here

    run = recorded(story)
    (finding,) = (one for one in Run().feed_all(run.events).report().findings if one.kind == "recompile")
    assert finding.place.code == "total.zero_()  # here"
    assert finding.count == 2
    again = [one.dur / 1e9 for one in run.of(Compile)][-2:]
    assert finding.cost_s == pytest.approx(sum(again))


@pytest.mark.parametrize("alike", [True, False])
def test_models_of_one_size_that_are_fitted_one_after_the_other_share_a_graph_but_for_their_data(
    alike: bool, recorded: Callable
) -> None:
    """A layer of snow is simulated day by day, for three huts with records of other lengths; or by other models too."""

    class Snow(nn.Module):
        def __init__(self, layers: int) -> None:
            super().__init__()
            self.melts = nn.Parameter(torch.full((layers,), 0.1))

        def forward(self, days: torch.Tensor) -> torch.Tensor:
            depth = self.melts * 0
            for day in days.unbind(0):
                depth = (depth - self.melts.sinh() * day).cosh()
            return depth

    def story() -> None:
        for hut, days in enumerate((5, 8, 6)):
            model = Snow(3 if alike else 3 + hut).to("xla")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                record = batch(days, 1)[:, 0].to("xla")
                optimizer.zero_grad()
                model(record).square().mean().backward()
                optimizer.step()
                xr.sync()

    run = recorded(story)
    diffs = [event.diff for event in run.of(Compile) if event.diff is not None]
    shapes = {(one.old, one.new) for diff in diffs for one in (*diff.inputs, *diff.differences)}
    assert (("f32[5]", "f32[8]") in shapes) is alike
