"""What a fix would give back of a run that grows: a sample of an earlier moment serves for a while."""

from __future__ import annotations

import pytest
from story import Story

from tests.analysis.test_replay import BARRIER, ITEM, gain_s, settled
from xlaprof.analysis.run import Run
from xlaprof.analysis.whatif import replay
from xlaprof.analysis.whatif.replay import Cut, WhatIf


def growing(steps: int, *, upload_since: int) -> tuple[Run, Cut, Cut]:
    """A step waits for a read for 10 ms; from one on, also for an upload for 5 ms. With what fixes each."""
    story = Story()
    barrier, item, up = story.line(20, BARRIER), story.line(21, ITEM), story.line(18, "x = x.to(device)")
    for step in range(steps):
        with story.step():
            story.trace(4)
            if step >= upload_since:
                story.upload(5, up)
            story.barrier(barrier, device=10, compile=0, dispatch=0)
            story.read(item, copy=0)
    return settled(story), replay.reads([item]), replay.uploads([up])


def test_a_sample_of_an_earlier_moment_serves_until_the_run_is_twice_as_long() -> None:
    earlier, reads, _ = growing(2_000, upload_since=9_999)
    sample = WhatIf(earlier).sample
    later, _, _ = growing(2_400, upload_since=9_999)
    longer, _, _ = growing(4_100, upload_since=9_999)
    what_if = WhatIf(later, sample)
    assert what_if.gain_s(reads) == pytest.approx(gain_s(later, reads), rel=1e-3)
    assert what_if.is_provisional
    assert not WhatIf(longer, sample).is_provisional
    assert WhatIf(longer, sample).gain_s(reads) == gain_s(longer, reads)


def test_what_came_after_the_sample_is_played_as_it_is() -> None:
    sample = WhatIf(growing(2_000, upload_since=9_999)[0]).sample
    later, reads, uploads = growing(2_400, upload_since=2_100)
    what_if = WhatIf(later, sample)
    assert what_if.gain_s(uploads) == gain_s(later, uploads) > 1
    assert not what_if.is_provisional
    assert what_if.sample is not sample
    assert what_if.gain_s(reads) == gain_s(later, reads)


def test_a_short_run_is_always_played_as_it_is() -> None:
    sample = WhatIf(growing(20, upload_since=99)[0]).sample
    assert not sample.serves(growing(21, upload_since=99)[0])


def test_what_was_played_of_a_run_that_grows_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read in every step, and a compile now and then: at each look the gains are those of the run as it is."""
    story = Story()
    barrier, item = story.line(20, BARRIER), story.line(21, ITEM)
    run, fed, sample = Run(), 0, None
    played: list[int] = []
    on = replay.Replay._on
    monkeypatch.setattr(
        replay.Replay,
        "_on",
        lambda self, reached, some, steps: played.append(len(some)) or on(self, reached, some, steps),
    )
    known: list[replay.Batch] = []  # but the last one
    spared = 0
    for look, steps in enumerate((1_500, 1_600, 3_200, 6_400)):  # each time it is more than twice as long
        for step in range(steps):
            with story.step():
                story.trace(4)
                story.barrier(barrier, device=10, compile=30 * (step == 0), graph=f"{look}", dispatch=0)
                story.read(item, copy=0)
        run.feed_all(story.events[fed:])
        fed = len(story.events)
        now, cuts = run.settled(), (replay.reads([item]), replay.barriers([barrier]), replay.compiles(run.compiles))
        what_if = WhatIf(now, sample)
        del played[:]
        gains = [what_if.gain_s(cut) for cut in cuts], what_if.gain_of_all_s(cuts)
        sample, kept = what_if.sample, [batch for _, batch in now.window.schedule.batches]
        there = len(known) if kept[: len(known)] == known else 0  # else every second one was dropped meanwhile
        assert sum(played[:2]) == len(kept) - there, "the last one, and those that are new, with nothing cut out"
        alone = WhatIf(now)
        assert gains == ([alone.gain_s(cut) for cut in cuts], alone.gain_of_all_s(cuts)), "to the bit"
        known, spared = kept[:-1], spared + there
    assert spared
