"""When a program ended, where who waited for it was late: the rule by a clock of its own, and a host that is busy."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xlaprof
from xlaprof.events import Execute
from xlaprof.sources.jax.sites import Lengths

MS = 1_000_000
INTERVAL = round(sys.getswitchinterval() * 1e9)


def known(*lengths: int) -> Lengths:
    made = Lengths()
    for length in lengths:
        made.ended(0, length, False, 1)
    return made


def test_an_end_that_was_waited_for_is_the_moment_it_was_seen() -> None:
    lengths = Lengths()
    assert lengths.ended(10, 10 + 3 * MS, False, 1) == 10 + 3 * MS
    assert lengths.usual == 3 * MS


def test_waits_for_the_lock_are_taken_off() -> None:
    """Python runs in the main thread: the lock comes after one whole interval, and what is left of a second."""
    assert Lengths().ended(0, 20 * MS, False, 3) == 20 * MS - INTERVAL


def test_within_the_last_interval_the_usual_length_decides() -> None:
    assert known(2 * MS).ended(0, 6 * MS, False, 2) == 2 * MS
    assert known(9 * MS).ended(0, 6 * MS, False, 2) == 6 * MS
    assert known(MS // 10).ended(0, 6 * MS, False, 2) == 6 * MS - INTERVAL


def test_what_had_ended_before_anybody_waited_took_as_long_as_usual() -> None:
    assert known(2 * MS, 2 * MS, 3 * MS).ended(100, 100 + 10 * MS, True, 0) == 100 + 2 * MS
    assert known(12 * MS).ended(0, 10 * MS, True, 0) == 10 * MS


def test_where_nothing_is_known_the_next_calls_stay_for_the_end() -> None:
    lengths = Lengths()
    assert lengths.ended(0, 10 * MS, True, 0) == 10 * MS
    assert lengths.stays == 3

    class Token:
        asked = 0

        def is_ready(self) -> bool:
            self.asked += 1
            return self.asked > 4

    clock = iter(range(0, 100 * MS, MS // 4))
    end = lengths.stay(Token(), 0, now=lambda: next(clock))
    assert (end, lengths.usual, lengths.stays) == (MS, MS, 2)
    assert lengths.stay(Token(), 0, now=lambda: 9 * MS) == 0  # it takes too long


@given(
    st.lists(st.integers(1, 50 * MS), max_size=5),
    st.integers(0, MS),
    st.integers(0, 60 * MS),
    st.booleans(),
    st.integers(0, 9),
)
def test_an_end_lies_between_the_start_and_what_was_seen(
    before: list[int], start: int, took: int, late: bool, blocked: int
) -> None:
    assert start <= known(*before).ended(start, start + took, late, blocked) <= start + took


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts how often a thread blocks")
def test_a_device_is_not_busy_for_as_long_as_the_host_runs_python(tmp_path: Path) -> None:
    """A program of a few ms, and a host that runs Python for 40 ms after each call."""
    matmul = jax.jit(lambda x: x @ x)
    x = jnp.ones((700, 700)) / 700
    matmul(x).block_until_ready()
    alone = []
    for _ in range(5):
        began = time.perf_counter_ns()
        matmul(x).block_until_ready()
        alone.append(time.perf_counter_ns() - began)
    with xlaprof.record(tmp_path / "run.log", detail="full"):
        for _ in range(12):
            matmul(x)
            until = time.perf_counter_ns() + 40 * MS
            while time.perf_counter_ns() < until:
                sum(range(50))
    runs = [event.end - event.start for event in xlaprof.read(tmp_path / "run.log") if isinstance(event, Execute)]
    assert sum(runs) / len(runs) < 40 * MS / 2 + 2 * max(alone)
