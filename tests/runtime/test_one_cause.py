"""One cause is one finding: what a value decides on, and what one change ends, is told once, and costs are disjoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Beta, Distribution, Laplace

import xlaprof.runtime as xr
from tests.advice.taken import findings, observe
from tests.recording import Recorded
from xlaprof import events
from xlaprof.analysis.model import Finding

Told = Callable[[Callable[[], object]], list[Finding]]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    def tell(story: Callable[[], object]) -> list[Finding]:
        recorded = observe(story, tmp_path / "run.log")
        found = list(findings(recorded.events))
        assert_disjoint(recorded, found)
        return found

    return tell


def assert_disjoint(recorded: Recorded, found: list[Finding]) -> None:
    """Findings cost no more than was compiled and waited for."""
    compiled = sum(one.dur for one in recorded.of(events.Compile))
    waited = sum(one.dur for one in recorded.of(events.TransferFromDevice))
    assert sum(one.cost_s for one in found) <= (compiled + waited) / 1e9


def test_a_step_size_that_a_read_halves_belongs_to_that_read(told: Told) -> None:
    point, target = torch.linspace(-2, 2, 37).to("xla"), torch.ones(37).to("xla")

    def search() -> None:
        at = point
        for _ in range(8):
            rate, before = 3.0, (at - target).square().sum()
            while rate > 1e-3:
                trial = at - rate * (at - target)
                if (trial - target).square().sum() < before:
                    break
                rate = rate * 0.5
            at = trial + 0.25 * rate * target
            xr.sync()

    (finding,) = [one for one in told(search) if one.kind in ("transfer", "recompile")]
    assert finding.kind == "transfer"
    assert finding.place.code == "if (trial - target).square().sum() < before:"
    assert "the most that it can take" in finding.advice
    assert "the loop itself would read" in finding.advice
    assert finding.cost_s > sum(part.cost_s for part in finding.parts)


def test_min_of_tensors_reads_and_the_path_that_it_takes_is_its_own(told: Told) -> None:
    rows = torch.randn(6, 31, generator=torch.Generator().manual_seed(3)).to("xla")

    def clipped() -> None:
        for turn in range(12):
            y = (rows * (2.5 - 0.4 * turn)).sum(1)
            loss = sum([min(one * 2, torch.full_like(one, 0.3)) for one in y])
            (loss + rows.sum()).tanh()
            xr.sync()

    (finding,) = [one for one in told(clipped) if one.kind in ("transfer", "recompile")]
    assert finding.kind == "transfer"
    assert "min() reads one number from the device" in finding.cause
    assert "torch.minimum for min()" in finding.advice
    assert {part.kind for part in finding.parts} == {"recompile"}, "the element that was taken, and the path behind it"


def test_elements_that_are_read_one_by_one_are_brought_over_at_once(told: Told) -> None:
    scores = torch.rand(40, generator=torch.Generator().manual_seed(5)).to("xla")

    def count() -> None:
        bins = [0] * 4
        (scores * 3.99).sum()
        xr.sync()
        for one in scores * 3.99:
            bins[int(one)] += 1

    (finding,) = told(count)
    assert "Bring the whole tensor to the host once, before the loop" in finding.advice
    assert finding.remedy == ""


def test_a_move_of_each_player_is_brought_over_at_once_though_steps_end_in_a_barrier(told: Told) -> None:
    """Each number that is read runs the network once more, for no barrier has come since the players were looked at."""
    network = torch.nn.Linear(7, 3).to("xla")

    def play() -> None:
        views = torch.rand(9, 7)
        for _ in range(6):
            moves = network(views.to("xla")).relu().argmax(-1)
            played = np.array([int(moves[player]) for player in range(len(views))])
            views = views.roll(int(played.sum()), 1)
            network(views.to("xla")).square().mean().backward()
            xr.sync()

    finding, *_ = told(play)
    assert finding.cause.startswith("int() reads one number from the device 9 times a step")
    assert "Bring the whole tensor to the host once, before the loop" in finding.advice


def test_what_one_setting_ends_is_one_finding_wherever_it_reads(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Distribution, "_validate_args", True)  # the default, which a test before may have changed
    x = torch.rand(29).to("xla")

    def prior(rate: torch.Tensor) -> torch.Tensor:
        return Laplace(rate, rate + 1).log_prob(rate)

    def likelihood(rate: torch.Tensor) -> torch.Tensor:
        return Beta(rate + 1, rate + 2).log_prob(rate * 0.5 + 0.25)

    def story() -> None:
        for _ in range(6):
            (prior(x) + likelihood(x)).sum()
            xr.sync()

    (finding,) = [one for one in told(story) if one.kind == "transfer"]
    assert "validate_args=False" in finding.advice
    lines = {one.place.code for one in (finding, *finding.parts)}
    assert lines == {
        "return Laplace(rate, rate + 1).log_prob(rate)",
        "return Beta(rate + 1, rate + 2).log_prob(rate * 0.5 + 0.25)",
    }


def test_two_reads_of_a_loop_that_grows_are_one_finding(told: Told) -> None:
    x = torch.rand(23).to("xla")

    def story() -> None:
        total = x
        for _ in range(9):
            total = (total * 1.01).sinh()
            total.sum().item()
            total = total.cosh() * 0.5
            total.max().item()

    found = [one for one in told(story) if one.kind == "growing_graph"]
    (finding,) = found
    assert finding.place.code == "for _ in range(9):"
    assert "No barrier ends a turn of the loop" in finding.cause
    assert [place.code for place in finding.also] == ["total.max().item()", "total.sum().item()"]


def test_what_the_barrier_after_a_growing_loop_runs_once_more_is_no_finding_of_its_own(told: Told) -> None:
    """An iteration that stops by a read: the barrier behind it holds as many turns as the iteration took."""
    weight = (torch.rand(17, 17) * 0.02).to("xla")

    def story() -> None:
        for most in (9, 6, 8, 5, 7, 9, 6, 8):
            x = y = torch.rand(17).to("xla")
            for turn in range(30):
                new = weight @ x + y
                gap = (new - x).abs().max().item()
                x = new
                if gap < 0 or turn == most:
                    break
            xr.sync()

    found = told(story)
    assert "growing_graph" in {one.kind for one in found}
    assert not [one for one in found if one.kind == "recompile" and "passes" in one.cause]


def test_what_a_turn_leaves_pending_after_its_barrier_is_one_cause_and_no_other_path(told: Told) -> None:
    """An average of the weights is updated after the barrier of a step: the first turn follows none that left it, and
    what precedes the loop is in its graph. Each graph comes once, by the barrier's place."""

    class Averaged:
        def __init__(self) -> None:
            self.model = torch.nn.Linear(27, 27).to("xla")
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.shadow = [parameter.detach().clone() for parameter in self.model.parameters()]

        def step(self, x: torch.Tensor) -> torch.Tensor:
            loss = (self.model(x.to("xla")) - 1).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            xr.sync()
            return loss.detach()

    def train() -> None:
        averaged = Averaged()
        for _ in range(3):
            total = torch.zeros((), device="xla")
            for _ in range(9):
                total += averaged.step(torch.ones(3, 27))
                with torch.no_grad():
                    for mean, parameter in zip(averaged.shadow, averaged.model.parameters(), strict=True):
                        mean.lerp_(parameter, 0.1)
            total.item()

    (finding,) = [one for one in told(train) if one.kind == "recompile"]
    assert finding.cause.startswith("Each turn of a loop leaves what this line records, behind its barrier")
    assert "as the first thing of each turn" in finding.advice


def test_what_one_loop_leaves_begins_the_first_graph_of_another_loop_too(told: Told) -> None:
    """The sum that a training empties after its last report: the sampling that follows begins with that, and its
    second step without."""
    weight, total = torch.ones(7, 7).to("xla"), torch.zeros(()).to("xla")
    xr.sync()

    def story() -> None:
        for step in range(24):
            total.add_((torch.rand(13, 7).to("xla") @ weight).sinh().mean())
            xr.sync()
            if step % 6 == 5:
                total.item()
                total.zero_()  # here
        x = torch.rand(5, 7).to("xla")
        for _ in range(8):
            x = torch.softmax((x @ weight).cosh(), -1)
            xr.sync()

    (finding,) = [one for one in told(story) if one.kind == "recompile"]
    assert finding.place.code == "total.zero_()  # here"
    assert finding.count == 2, "a step of the training, and one of the sampling"
    assert "begins the graph of the step that follows" in finding.cause
    assert "sync()) after it" in finding.advice


def test_what_a_read_computes_of_a_growing_length_is_compiled_again_with_the_growth(told: Told) -> None:
    """A library looks at the positions of a sequence, which is longer in each step, before it goes on."""
    weight = torch.ones(5, 5).to("xla")

    def story() -> None:
        rows = torch.zeros(3, 16, 5).to("xla")
        for _ in range(9):
            places = torch.arange(rows.shape[1], device="xla") * 2
            if (places.diff() != 2).any().item():
                break
            rows = torch.cat([rows, (rows @ weight).sum(1, keepdim=True).tanh()], 1)
            xr.sync()

    (finding,) = [one for one in told(story) if one.kind == "recompile"]
    assert finding.place.code.startswith("rows = torch.cat([rows,")
    assert finding.count > 10, "the graphs of the steps, and of the reads"


def test_a_set_that_begins_with_a_batch_and_grows_by_rows_has_no_last_batch(told: Told) -> None:
    """Soundings of a seabed: eleven at first, joined to nothing, then one at a time."""
    weight = torch.ones(3, 3).to("xla")
    xr.sync()

    def story() -> None:
        seabed = torch.zeros(0, 3, device="xla")
        for count in (11, *[1] * 9):
            seabed = torch.cat([seabed, torch.rand(count, 3).to("xla")])  # here
            (seabed @ weight).atan().mean().item()
            xr.sync()

    (finding,) = [one for one in told(story) if one.kind == "recompile"]
    assert finding.place.code.endswith("# here")
    assert "The shape (dimension 0) of seabed" in finding.cause
    assert "grows from step to step: allocate it once at its largest" in finding.advice
    assert "last batch" not in finding.advice
