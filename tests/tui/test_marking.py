"""When steps are looked up in which findings happened."""

from __future__ import annotations

from xlaprof.analysis.run import Run
from xlaprof.tui.marking import Marking

from .training import Training


def test_the_log_is_read_for_marks_when_there_are_new_ones_and_rarely(story: Training) -> None:
    """A training reads its loss in every step: only the first thousand times are marked."""
    clock = [100.0]
    marking = Marking(lambda: clock[0])
    run, fed = Run(), 0

    def is_due() -> bool:
        nonlocal fed
        run.feed_all(story.events[fed:])
        fed = len(story.events)
        return marking.is_due(run.report())

    story.train_step(compile_ms=900)
    story.train(40, read=True)
    assert is_due()
    marking.begin(run.report())
    story.train(40, read=True)
    assert not is_due(), "it is being looked"
    clock[0] += 0.5
    marking.end()
    clock[0] += 119
    assert not is_due(), "that took half a second, and the finding is known: 1/240 of the time is spent so"
    clock[0] += 2
    assert is_due()
    story.train(1_000, read=True)
    marking.begin(run.report())
    assert is_due() is False
    marking.end()
    clock[0] += 60
    assert is_due(), "they have become a thousand"
    marking.begin(run.report())
    clock[0] += 0.5
    marking.end()
    clock[0] += 25
    story.train(10, read=True)
    assert not is_due(), "further ones are not marked"
    story.train_step(compile_ms=90_000, shape="i64[5,128]", read=True)
    assert not is_due(), "another finding is, but the look took half a second"
    clock[0] += 6
    assert is_due(), "a new finding is looked up at a sixtieth of the time"
