"""What rises steadily over a long run is reported with the line that keeps it; noise, jumps and warm-up are not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from story import Story

from xlaprof.analysis.findings.growth import _remedy
from xlaprof.analysis.fold.series import Series, climb, rise
from xlaprof.analysis.model import Place
from xlaprof.events import Kept, Live

MIB = 1 << 20


def test_a_steady_rise_is_reported_by_its_ends() -> None:
    found = rise([100 + i for i in range(400)])
    assert found is not None
    assert found.first == pytest.approx(190, abs=3)
    assert found.last == pytest.approx(490, abs=3)


def test_noise_a_jump_a_fall_and_too_few_values_are_no_rise() -> None:
    dice = random.Random(3)
    for _ in range(50):
        assert rise([dice.gauss(100, 15) for _ in range(300)]) is None
    assert rise([100.0] * 150 + [160.0] * 150) is None
    assert rise([1000.0 - i for i in range(300)]) is None
    assert rise([float(i) for i in range(40)]) is None
    assert rise([300.0, 200.0, 150.0] + [100.0] * 300) is None


def test_exact_numbers_climb_whatever_their_distances() -> None:
    steps = [1, 3, 5, 8, 11, 14, 18, 22, 26, 30, 35, 40, 45, 48, 437]
    found = climb([(step, 10 + 3 * step) for step in steps])
    assert found == (10 + 3 * 8, 10 + 3 * 437)
    assert climb([(step, 10.0 if step < 40 else 900.0) for step in steps]) is None
    assert climb([(step, 10 + 3 * step) for step in steps[:7]]) is None
    assert climb([(7, float(n)) for n in range(30)]) is None
    assert climb([(step, 100 + 5 * (step % 7)) for step in range(200)]) is None


def test_a_rise_is_found_in_noise() -> None:
    dice = random.Random(5)
    found = rise([100 + i / 4 + dice.gauss(0, 10) for i in range(800)])
    assert found is not None
    assert found.last > 1.8 * found.first


def test_a_series_stays_bounded_and_in_order() -> None:
    series: Series[int] = Series()
    for i in range(100_000):
        series.add(i)
    assert series.seen == 100_000
    assert len(series.values) <= 512
    assert series.values == sorted(series.values)
    assert series.values[0] == 0
    assert series.values[-1] > 99_000


def trained(
    steps: int, *, tensors: float = 0.0, size: float = 0.0, slower: float = 0.0, keeper: str = "", kind: str = "list",
    lines: int = 3,
) -> Story:  # fmt: skip
    """A training of which each step keeps so many tensors and bytes, and is so many ms longer than the one before."""
    story = Story()
    barrier = story.line(20, "torch_xla.sync()")
    loss, hidden = story.line(12, "loss = criterion(model(x), y)"), story.line(8, "h = self.fc(x)", func="forward")
    out = story.line(9, "return self.out(h.relu())", func="forward")
    put = story.line(24 + len(keeper), f"self.{keeper}.append(loss)", func="Metrics.update")
    for n in range(steps):
        with story.step():
            story.trace(2 + slower * n)
            story.barrier(barrier, device=5)
            held = [[loss, 30, 120], [hidden, 30, 9000], [out, 30, 500]][:lines] if tensors else []
            kept = Kept(f"Metrics.{keeper}", kind, n, lines > 1, [put]) if keeper and n == 40 else None
            alive, most = int(60 + tensors * n), int(8 * MIB + size * n)
            story.emit(Live(t=story.now, tensors=alive, bytes=most, held=held, kept=kept))
    return story


def test_a_history_that_is_kept_is_reported_at_the_line_that_made_it() -> None:
    (finding,) = trained(200, tensors=6, size=40_000).findings()
    assert (finding.kind, finding.place.line) == ("growth", 12)
    assert [place.line for place in finding.also] == [8, 9]
    assert "from 60 tensors (8 MiB) to 1,254" in finding.cause
    assert "gradient" in finding.cause
    assert "append(loss.detach())" in finding.remedy
    assert finding.cost_s == 0


def test_a_history_that_is_kept_is_reported_at_the_line_that_keeps_it() -> None:
    (finding,) = trained(200, tensors=6, size=40_000, keeper="history").findings()
    assert (finding.kind, finding.place.line) == ("growth", 31)
    assert [place.line for place in finding.also] == [12, 8, 9]
    assert "the list Metrics.history, to which line 31 adds, keeps what line 12 made, with all that" in finding.cause
    assert finding.remedy == "self.history.append(loss.detach())  # not: self.history.append(loss)"
    assert "Metrics.history had 40 elements when it was looked at" in finding.evidence


@pytest.mark.parametrize("kept", ["error.abs().mean()", "(step, loss)"])
def test_what_is_put_there_is_detached_as_it_is_written(kept: str) -> None:
    place = Place("train.py", 31, code=f'self.history["error"].append({kept})')
    whole = f'self.history["error"].append({kept}.detach())'
    assert _remedy(place).startswith(whole) is ("," not in kept)


def test_what_is_kept_without_a_history_needs_a_limit() -> None:
    (finding,) = trained(300, tensors=1, size=30_000, keeper="seen", lines=1).findings()
    assert finding.remedy == ""
    assert "Let go of what Metrics.seen has no more use for (give it a limit: collections.deque" in finding.advice
    (finding,) = trained(300, tensors=1, size=30_000, keeper="cache", kind="dict", lines=1).findings()
    assert "the dict Metrics.cache" in finding.cause
    assert "a limit: a largest size" in finding.advice


def test_of_two_ranks_the_keeper_of_the_longer_is_reported() -> None:
    short, long = (trained(n, tensors=6, size=6e3, keeper=name) for n, name in ((120, "short"), (200, "long")))
    (finding,) = (short.run() + long.run()).report("").findings
    assert "Metrics.long" in finding.cause
    assert finding.place.code == "self.long.append(loss)"


def test_a_list_of_detached_numbers_is_none() -> None:
    assert trained(400, tensors=1, size=4).findings() == []


def test_few_large_tensors_that_stay_are_one() -> None:
    (finding,) = trained(300, tensors=1, size=30_000).findings()
    assert (finding.kind, finding.place.line) == ("growth", 12)


def test_a_short_run_says_nothing_of_growth_but_of_a_history_that_is_kept() -> None:
    assert trained(60, tensors=1, size=1e6, slower=0.1).findings() == []  # results, to be looked at when all are there
    (finding,) = trained(60, tensors=6, size=1e6).findings()
    assert (finding.kind, finding.place.line) == ("growth", 12)
    assert trained(25, tensors=50, size=1e6).findings() == []


def test_what_the_layers_of_forty_steps_made_is_one_however_small() -> None:
    (finding,) = trained(40, tensors=3, size=3000, lines=2).findings()
    assert (finding.kind, finding.place.line) == ("growth", 12)
    assert "gradient" not in finding.cause
    assert trained(40, tensors=3, size=12, lines=2).findings() == []  # the log of three numbers


@pytest.mark.parametrize(
    "held",
    [
        lambda n: n % 20,  # an epoch's results, cleared at its end
        lambda n: min(n, 12),  # a buffer with a limit
        lambda n: 30 * (n > 2),  # an optimizer's state
        lambda n: 30 * (n // 16),  # the best weights of each epoch
    ],
)
def test_what_is_let_go_or_stays_as_it_is_does_not_grow(held: Callable[[int], int]) -> None:
    story = Story()
    barrier = story.line(20, "torch_xla.sync()")
    for n in range(64):
        with story.step():
            story.barrier(barrier, device=5)
            if n % 4 == 0:
                story.emit(Live(t=story.now, tensors=20 + 9 * held(n), bytes=90_000 * held(n), held=[[barrier, 9, 90]]))
    assert story.findings() == []


def test_steps_that_get_slower_are_reported_with_what_that_costs() -> None:
    story = trained(300, slower=0.02)
    (finding,) = story.findings()
    assert (finding.kind, finding.operation, finding.place.line) == ("growth", "train", 20)
    first = 2.2 + 0.02 * 0.225 * 300  # the first sixteenth after the warm-up
    durations = [2.2 + 0.02 * n for n in range(1, 300)]
    assert finding.cost_s == pytest.approx((sum(durations) - first * 299) / 1e3, rel=0.05)
    assert "get slower all the time" in finding.cause


def test_of_two_ranks_the_growth_is_reported_once() -> None:
    one, two = trained(200, tensors=6, size=6e3), trained(200, tensors=6, size=6e3)
    kinds = [finding.kind for finding in (one.run() + two.run()).report("").findings]
    assert kinds == ["growth"]


def test_a_log_whose_readings_make_no_sense_is_read() -> None:
    story = trained(150, tensors=6)
    story.emit(Live(t=0, tensors=0, bytes=2**60 - 1, held=[[99, 0, 0], [0, 2**60 - 1, 1], [99, 7, 0]]))
    story.spend(1)
    assert isinstance(story.findings(), list)


def test_the_draws_of_a_short_chain_are_its_result() -> None:
    assert trained(65, tensors=3, size=300, keeper="chain", lines=1).findings() == []
