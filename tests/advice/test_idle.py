"""Advice on what the host does while the device idles is taken.

Of that time only a planted clock tells the same in every run: these programs are stories. Real ones, with their fixed
versions, are in ``tests/zoo`` and on the pages of ``docs/findings``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.analysis.test_gaps import Watched
from tests.story import MS
from xlaprof.events import Scope

Do = Callable[[Watched, int], None]


class Idle(NamedTuple):
    """What the host does in each step while the device waits, and what it does of it when the advice is followed."""

    name: str
    before: Do
    words: str
    after: Do
    line: str = "work(batch)"
    loop: int = 0  # the line of the loop around it, within a turn


def nothing(story: Watched, line: int) -> None:
    """It is done before the loop."""


def beside(story: Watched, line: int) -> None:
    """It is done in another thread, all the time."""
    story.emit(Scope(name=story.text("work"), t=story.now - 12 * MS, dur=12 * MS, tid=2, stack=line))


def once_in(steps: int, do: Do) -> Do:
    turn = iter(range(10_000))
    return lambda story, line: do(story, line) if next(turn) % steps == steps - 1 else None


def scope(story: Watched, line: int) -> None:
    with story.scope("tokenize", line):
        story.spend(25)


IDLE = [
    Idle("a scope", scope, " does before the loop, in a background thread", nothing),
    Idle("a scope in a thread", scope, "in a background thread, or on the device", beside),
    Idle(
        "plain Python",
        lambda story, line: story.seen(25, "python", line),
        "Move this work out of the loop or into ",
        nothing,
    ),
    Idle(
        "plain Python in a thread",
        lambda story, line: story.seen(25, "python", line),
        ", or do it on the device.",
        beside,
    ),
    Idle(
        "draws one by one",
        lambda story, line: story.seen(25, "python", line),
        "needs in one call, in place of one after another",
        lambda story, line: story.seen(0.4, "python", line),
        "angle = rng.uniform(-a, a)",
        10,
    ),
    Idle(
        "elements one by one",
        lambda story, line: story.seen(25, "python", line),
        "Do it with operations on whole arrays in place of ",
        lambda story, line: story.seen(0.4, "python", line),
        loop=10,
    ),
    Idle(
        "a data wait",
        lambda story, line: story.data(25, line),
        ", or load ahead: ",
        lambda story, line: story.data(0.1, line),
    ),
    Idle(
        "a loader that begins anew",
        once_in(6, lambda story, line: story.data(60, line)),
        "Let the loader go on from pass to pass",
        once_in(6, lambda story, line: story.data(0.1, line)),
    ),
    Idle(
        "a generator of batches",
        lambda story, line: story.seen(25, "data", line),
        "or make it ahead, in a background thread",
        lambda story, line: story.seen(1, "data", line),
    ),
    Idle(
        "cheaper samples",
        lambda story, line: story.data(25, line),
        "Make a sample cheaper",
        lambda story, line: story.data(4, line),
    ),
    Idle(
        "a checkpoint",
        lambda story, line: story.seen(60, "checkpoint", line),
        "Do so less often, or copy the state",
        once_in(30, lambda story, line: story.seen(60, "checkpoint", line)),
    ),
    Idle(
        "a checkpoint in a thread",
        lambda story, line: story.seen(60, "checkpoint", line),
        "write it in a background thread",
        lambda story, line: (story.spend(0.2), beside(story, line))[0],
    ),
    Idle(
        "a wait",
        lambda story, line: story.seen(25, "wait", line),
        "Do this in a background thread that the loop does not wait for",
        beside,
    ),
    Idle("a wait left out", lambda story, line: story.seen(25, "wait", line), "or leave it out of the loop", nothing),
    Idle(
        "the interpreter's lock",
        lambda story, line: story.seen(25, "gil", line, "reader", line),
        "Do that thread's work in a process of its own",
        nothing,
    ),
    Idle(
        "functions that release the lock",
        lambda story, line: story.seen(25, "gil", line, "reader", line),
        "functions that release the lock while they work",
        lambda story, line: story.seen(0.5, "gil", line, "reader", line),
    ),
    Idle(
        "collections by hand",
        lambda story, line: story.gc(25, line),
        "Leave gc.collect() out of the loop",
        once_in(30, lambda story, line: story.gc(25, line)),
        "gc.collect()",
    ),
    Idle(
        "collections",
        lambda story, line: story.gc(25, line),
        "Call gc.freeze() after the set-up",
        lambda story, line: story.gc(0.2, line),
    ),
]


def steps(do: Do, code: str, loop: int) -> Watched:
    story = Watched()
    barrier, line = story.line(20, "xr.sync()"), story.line(11, code, loops=(loop,))
    for _ in range(40):
        with story.step():
            do(story, line)
            story.trace(3)
            story.barrier(barrier, device=10, compile=0)
    story.finish()
    return story


@pytest.mark.parametrize("case", IDLE, ids=lambda case: case.name)
def test_the_device_idles_less(case: Idle) -> None:
    before, after = (steps(do, case.line, case.loop).report() for do in (case.before, case.after))
    (finding,) = before.findings
    assert (finding.kind, case.words in finding.advice) == ("idle_gap", True)
    assert after.findings == ()
    assert before.idle.idle_s - after.idle.idle_s >= 0.9 * finding.cost_s * 0.7
