"""Ranks beside each other: the one that is planted as slow is named with its part and line; alike ones are not."""

from __future__ import annotations

import pytest
from ranked import RankStory

from xlaprof.analysis.run import KeptRun
from xlaprof.analysis.summary import summarize
from xlaprof.analysis.views.course import course
from xlaprof.analysis.views.details import details
from xlaprof.analysis.views.ranks import Member, Ranks, ranks


def member(story: RankStory) -> Member:
    settled = KeptRun().feed_all(story.events).settled()
    report = summarize(settled, f"run.rank{story.rank}.log", (), None)
    return Member(report.run.path, report, course(settled, report.steps[0].name if report.steps else ""),
                  details(settled))  # fmt: skip


def beside(*stories: RankStory) -> Ranks:
    return ranks([member(story) for story in stories])


def test_the_rank_that_the_others_wait_for_is_named_with_its_part_and_its_line() -> None:
    found = beside(RankStory(0).train(30), RankStory(1).train(30, data=25), RankStory(2).train(30))
    slow = found.slow
    assert slow is not None
    assert (slow.rank, slow.waited_for) == (1, True)
    assert slow.lag_s == pytest.approx(0.024, rel=0.02), "25 ms for a batch, where the others take 1"
    assert slow.parts[0][0] == "between steps"
    assert slow.parts[0][1:] == pytest.approx((0.025, 0.001), rel=0.02)
    assert slow.finding is not None
    assert (slow.finding.kind, slow.finding.place.line) == ("idle_gap", 12)
    one, other = found.ranks[1], found.ranks[0]
    assert one.cycle_s == pytest.approx(other.cycle_s, rel=0.02), "all take as long as the slowest"
    assert one.own_s + one.wait_s == pytest.approx(one.cycle_s)
    assert sum(seconds for _, seconds in one.parts) == pytest.approx(one.own_s)
    assert (found.first, found.last, found.world, found.missing) == (1, 29, 3, ())


def test_ranks_that_are_alike_have_no_slowest() -> None:
    found = beside(*(RankStory(rank).train(30, data=1 + rank / 2) for rank in range(3)))
    assert found.slow is None
    assert found.divergences == ()


def test_ranks_that_do_not_wait_for_each_other_are_judged_by_their_steps() -> None:
    found = beside(RankStory(0).train(30), RankStory(1).train(30, cycle=90), RankStory(2).train(30))
    assert found.slow is not None
    assert (found.slow.rank, found.slow.waited_for) == (1, False)
    assert found.slow.lag_s == pytest.approx(0.05, rel=0.02)
    assert found.slow.parts[0][0] == "waiting for the device", "its own device is what takes longer"


def test_a_graph_of_one_rank_alone_is_told_with_its_line_once_the_others_have_come_as_far() -> None:
    alone = RankStory(1).train(10).train(1, shape="i64[5,128]").train(9)
    others = [RankStory(rank).train(20) for rank in (0, 2)]
    (found,) = beside(alone, *others).divergences
    assert (found.ranks, found.others, found.step) == ((1,), (0, 2), 10)
    assert (found.place.line, found.change) == (
        31,
        "shape of input 0 of aten::embedding: i64[8,128] -> i64[5,128]",
    )
    behind = beside(alone, RankStory(0).train(8))
    assert behind.divergences == (), "rank 0 may compile it yet"


def test_a_rank_without_a_log_is_missing_and_one_that_joins_late_is_not_compared() -> None:
    late = RankStory(3, world=4).train(4)
    found = beside(RankStory(0, world=4).train(30), RankStory(2, world=4).train(30, data=20), late)
    assert found.missing == (1,)
    assert [one.compared for one in found.ranks] == [True, True, False]
    assert found.slow is not None
    assert found.slow.rank == 2


def test_a_rank_that_has_stopped_is_compared_as_far_as_it_came() -> None:
    found = beside(RankStory(0).train(30), RankStory(1).train(20, data=25))
    assert (found.first, found.last) == (1, 19)
    assert found.slow is not None
    assert found.slow.rank == 1


def test_no_ranks_and_ranks_without_steps_are_nothing_to_compare() -> None:
    assert ranks([]) == Ranks()
    found = beside(RankStory(0), RankStory(1))
    assert (found.slow, found.first, found.divergences, found.missing) == (None, -1, (), (2,))
