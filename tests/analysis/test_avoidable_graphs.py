"""Graphs of a loop's first turn: what a barrier would spare is a finding where it is dear, and avoidable where not."""

import pytest
from story import Story

from analysis.test_accounts import account
from xlaprof.events import Block, Change, Difference, GraphDiff, Operation


def epochs(late: bool = False) -> Story:
    """Three epochs, whose first step also sets a sum to zero; ``late``: another graph from step 7 on, for good."""
    story = Story()
    barrier = story.line(40, "xr.sync()", loops=(34,))
    zeros, forward = (
        story.line(33, "total = torch.zeros(())", loops=(32,)),
        story.line(35, "loss = model(x)", loops=(34,)),
    )
    for n in range(21):
        with story.step():
            story.trace(2)
            graph, change = ("first", None) if not n % 7 else ("other", None)
            if n == 1:
                change = Change("operation", "aten::zeros", "aten::mm", stack=zeros, made=zeros, expected=forward)
            if late and n >= 7:
                graph, change = "late", Change("operation", "aten::mm", "aten::tanh", stack=forward, made=forward)
            story.barrier(barrier, 10, graph, compile=200, change=change)
    return story


def test_what_makes_the_first_graph_of_each_epoch_another_is_named() -> None:
    report = epochs().report()
    assert report.clean
    compiling = account(report, "compile")
    assert compiling.normal_s == pytest.approx(0.4)
    assert (
        "compiled again, for the first of a loop also holds what train.py:33 (total = torch.zeros(())" in compiling.text
    )


def test_what_was_recorded_before_the_only_loop_is_part_of_its_first_graph() -> None:
    def set_up(ms: float) -> Story:
        story = Story()
        zeros = story.line(9, "self.mean = torch.zeros(3, device=device)", "Meter.__init__", outer=(30,))
        barrier = story.line(40, "xr.sync()", "main", loops=(34,))
        gone = Change("operation", "aten::zeros", "aten::mm", stack=story.line(36, "y = x @ w", "main"), expected=zeros)
        for n in range(12):
            story.trace(2)
            story.barrier(barrier, 10, "later" if n else "first", compile=ms, change=gone if n == 1 else None)
        return story

    assert set_up(200).findings() == []
    compiling = account(set_up(200).report(), "compile").text
    assert "for the first of a loop also holds what train.py:9 (self.mean = torch.zeros(3, device=device))" in compiling
    (dear,) = set_up(6_000).findings()
    assert (dear.kind, dear.place.line, dear.cost_s) == ("recompile", 9, 6.0)


@pytest.mark.parametrize("dear", [False, True])
def test_what_a_barrier_in_each_turn_would_spare_is_never_normal(dear: bool) -> None:
    """Nights of a telescope, each of which stacks its frames behind the barrier: avoidable, and a finding if dear."""
    story = Story()
    barrier = story.line(24, "xr.sync()", loops=(22, 18))
    zeros = story.line(20, "stack = torch.zeros(64, 64)", loops=(18,))
    adds = story.line(25, "stack += frame", loops=(22, 18))
    block = Block(old=[Operation("aten::zeros", zeros)], new=[Operation("aten::add_", adds)], added=1, removed=1,
                  roles={"": 2}, stack=adds)  # fmt: skip
    came = Difference("operation", "aten::zeros", "aten::add_", expected=block.old[0], came=block.new[0], block=block)
    diff = GraphDiff(against=1, added=1, removed=1, differences=[came], total=1, roles=[""])
    for n in range(24):
        first = n % 8 == 0
        with story.step():
            story.barrier(barrier, 8, "first" if first else "later", compile=300, change=None if first else diff)
            story.spend(20 if dear else 400)
    report = story.report()
    compiling = account(report, "compile")
    assert [one.place.line for one in report.findings] == [25] * dear
    assert ("avoidable: 1 graph compiled again" in compiling.text) is not dear
    assert ("as the first thing of a turn saves that" in compiling.text) is not dear
    assert compiling.explained_s == pytest.approx(0.3 * dear)


@pytest.mark.parametrize("line", [26, 22])
def test_what_a_turn_leaves_behind_its_barrier_is_told_where_nothing_precedes_the_loop(line: int) -> None:
    """A drift is measured behind each barrier: the first graph lacks it. What stands before the barrier is no such."""
    story = Story()
    barrier = story.line(24, "xr.sync()", loops=(20,))
    drift = story.line(line, "drift.append((weight - start).norm())", loops=(20,))
    norm = Operation("aten::norm", drift)
    block = Block(new=[norm], added=1, roles={"": 1}, stack=drift)
    came = Difference("operation", "aten::mm", "aten::norm", came=norm, block=block)
    diff = GraphDiff(against=1, added=1, differences=[came], total=1, roles=[""])
    for n in range(12):
        with story.step():
            story.barrier(barrier, 8, "later" if n else "first", compile=300, change=diff if n == 1 else None)
    told = account(story.report(), "compile").text
    behind = "the first turn of a loop does not have what train.py:26 (drift.append((weight - start).norm())) leaves"
    assert (behind in told and "after it saves that" in told) is (line == 26)


def test_a_graph_that_a_finding_spares_is_not_spared_once_more_by_the_one_that_replaced_it() -> None:
    story = Story()
    load = story.line(9, "self.mean = torch.zeros(3, device=device)", "Meter.__init__", outer=(30,))
    barrier = story.line(40, "xr.sync()", "main", loops=(34,))
    zeros, mm = Operation("aten::zeros", load), Operation("aten::mm", story.line(36, "y = x @ w", "main", loops=(34,)))
    block = Block(old=[zeros], removed=1, roles={"": 1}, stack=load)
    gone = Difference("operation", "aten::zeros", "aten::mm", expected=zeros, came=mm, block=block)
    diff = GraphDiff(against=1, common=1, removed=1, differences=[gone], total=1, roles=[""])
    for n in range(12):
        story.trace(2)
        story.barrier(barrier, 10, "later" if n else "first", compile=6_000, change=diff if n == 1 else None)
    report = story.report()
    (finding,) = report.findings
    assert (finding.place.line, finding.cost_s) == (9, pytest.approx(6.0))
    compiling = account(report, "compile")
    assert compiling.explained_s == pytest.approx(6.0)
    assert "also holds" not in compiling.text, "the graph that replaced it is the first that is needed"


def test_warm_up_is_said_of_the_first_steps_only() -> None:
    assert "warm-up" not in account(epochs(late=True).report(), "compile").text


@pytest.mark.parametrize("behind", ["a loop", "no loop"])
def test_a_barrier_is_advised_before_each_loop_that_begins_with_the_graph(behind: str) -> None:
    """A mirror is set anew before each of three exposures of eight frames, and once more before what follows them.

    A barrier before the exposures alone would leave the graph to what follows.
    """
    story = Story()
    mirror = story.line(21, "self.mirror = torch.tensor(angles).to(device)", loops=(20,))
    barrier = story.line(24, "xr.sync()", loops=(22, 20))
    after = story.line(34, "xr.sync()", func="survey", loops=(0 if behind == "no loop" else 31,))
    frame = Operation("aten::mm", story.line(23, "image = self.mirror @ field", loops=(22, 20)))
    full = Operation("aten::full", mirror)
    block = Block(new=[full], added=1, roles={"": 1}, stack=mirror)
    came = Difference("operation", "aten::mm", "aten::full", expected=frame, came=full, block=block)
    diff = GraphDiff(against=1, added=1, differences=[came], total=1, roles=[""])
    for n in range(3 * 8 + 9):
        first = n % 8 == 0 and n > 0
        story.trace(2)
        story.barrier(barrier if n < 24 else after, 8, "first" if first else "frame", 6_000, diff if first else None)
        story.spend(30)
    story.finish()
    found = story.findings("recompile")
    if behind == "no loop":
        assert found == []
        assert "directly before" not in account(story.report(), "compile").text
        return
    (finding,) = found
    assert (finding.place.line, finding.count) == (21, 1)
    assert "directly before each of the loops at train.py:22 and train.py:31: all" in finding.advice
