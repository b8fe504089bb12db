"""A graph that grows by reads in the turns of a loop which a barrier ends is a part of these reads."""

from __future__ import annotations

import pytest
from story import Story

from xlaprof.events import Change


def test_reads_that_one_setting_ends_are_the_cause_of_the_graph_that_grows_by_them() -> None:
    """An episode is one graph by design, which the checks of a distribution cut in each of its turns."""
    story = Story()
    check = story.line(21, "log_probs.append(policy.log_prob(action))", func="play", outer=(44,), loops=(18, 42))
    barrier = story.line(47, "torch_xla.sync()", func="main", loops=(42,))
    more = Change("operation", "barrier", "aten::mm", "the next operation", stack=check, added=15, against=1)
    for episode in range(8):
        for n in range(6):
            story.trace(5)
            if not episode:
                story.compile(f"up to {n}", 200, check, more if n else None, trigger="read", ops=20 + 15 * n)
            story.execute(f"up to {n}", 5, check, "read")
            story.read(check, via="Normal.log_prob")
        story.barrier(barrier, 5, "update", ops=200)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line) == ("transfer", 21)
    assert finding.advice.startswith("Pass validate_args=False")
    (part,) = finding.parts
    assert (part.kind, part.cost_s) == ("growing_graph", pytest.approx(5 * 0.2))
    assert finding.cost_s > part.cost_s


@pytest.mark.parametrize("kept", [True, False])
def test_reads_that_are_only_kept_are_the_cause_of_the_graph_that_grows_by_them(kept: bool) -> None:
    """A spiking layer keeps its mean rate, or goes by it, in each turn of a loop that the step's barrier ends."""
    story = Story()
    line = "self.rates.append(float(s.mean()))" if kept else "if float(s.mean()) > 0.5:"
    rate = story.line(21, line, func="forward", outer=(44,), loops=(18, 42))
    barrier = story.line(47, "torch_xla.sync()", func="main", loops=(42,))
    more = Change("operation", "barrier", "aten::mm", "the next operation", stack=rate, added=15, against=1)
    for step in range(8):
        for n in range(6):
            story.trace(5)
            if not step:
                story.compile(f"up to {n}", 200, rate, more if n else None, trigger="read", ops=20 + 15 * n)
            story.execute(f"up to {n}", 5, rate, "read")
            story.read(rate)
        story.barrier(barrier, 5, "update", ops=200)
    story.finish()
    found = story.findings()
    assert [one.kind for one in found if one.kind == "growing_graph"] == ["growing_graph"] * (not kept)
    (read,) = (one for one in found if one.kind == "transfer")
    assert [part.kind for part in read.parts] == ["growing_graph"] * kept
