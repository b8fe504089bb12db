"""A program may be killed at any moment: its log can be read, and lacks at most the last 100 ms of its life."""

from __future__ import annotations

import random

from .killing import kills


def test_a_kill_at_any_moment_costs_at_most_100_ms() -> None:
    seed = random.SystemRandom().randrange(10**6)
    done = kills(range(seed, seed + 20))
    print("\n" + done.figures())
    assert not done.failures, done.failures
    assert done.recorded > len(done.kills) / 2
