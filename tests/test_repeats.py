"""Whether data that a line brings to the device is what it brought before: the content decides."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.recording import repeats
from xlaprof.recording.repeats import WHOLE, Repeats


@pytest.fixture(autouse=True, scope="module")
def clock() -> Iterator[None]:
    """Time passes by a microsecond at each look at the clock, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "perf_counter_ns", count(0, 1_000).__next__)
        yield


def answers(*arrays: np.ndarray, place: object = "line 9") -> list[bool]:  # type: ignore[type-arg]
    known = Repeats()
    return [known.again(place, array) for array in arrays]


SMALL, LARGE = np.arange(100, dtype=np.float32), np.random.default_rng(0).normal(size=(3_000, 48)).astype(np.float32)


def test_a_small_table_made_anew_is_the_same_data() -> None:
    assert answers(SMALL, SMALL.copy(), SMALL.copy()) == [False, True, True]


def test_a_large_one_is_once_all_of_it_was_seen_to_come_again() -> None:
    assert LARGE.nbytes > WHOLE
    assert answers(*(LARGE.copy() for _ in range(5))) == [False, False, True, True, True]


def test_new_data_in_each_step_is_none() -> None:
    rng = np.random.default_rng(0)
    assert not any(answers(*(rng.normal(size=(64, 500)) for _ in range(8))))


def test_the_same_object_filled_with_other_data_is_none() -> None:
    known, buffer, rng = Repeats(), np.empty((64, 500), np.float32), np.random.default_rng(0)
    for _ in range(8):
        buffer[:] = rng.normal(size=buffer.shape)
        assert not known.again("line 9", buffer)


def test_a_change_where_the_sample_does_not_look_is_noticed() -> None:
    known, table = Repeats(), np.zeros((4_000, 64), np.float32)
    found = []
    for step in range(40):
        table[:] = 0
        table[step * 7 % 4_000, 5] = 1
        found.append(known.again("line 9", table))
    assert not any(found)


def test_a_change_after_a_long_time_ends_it() -> None:
    known, table = Repeats(), LARGE.copy()
    assert [known.again("line 9", table) for _ in range(40)][-1]
    table[:] += 1
    assert not known.again("line 9", table)


def test_two_tables_by_turns_are_the_same_data_and_a_data_set_is_none() -> None:
    first, second = LARGE, LARGE + 1
    assert answers(*(first, second) * 3) == [False] * 4 + [True] * 2
    batches = [LARGE + number for number in range(10)]
    assert not any(answers(*batches * 3))


def test_a_few_tables_that_come_again_and_again_are_the_same_data_though_they_are_more_than_two() -> None:
    """Ten projections of a scanner, each used in every round: they can stay on the device."""
    tables = [SMALL + number for number in range(10)]
    found = answers(*tables * 12)
    assert not any(found[:80])
    assert all(found[90:])
    many = [SMALL + number for number in range(40)]
    assert not any(answers(*many * 12))


def test_samples_that_did_not_deceive_are_trusted_of_the_other_tables_of_the_line() -> None:
    tables = [LARGE + number for number in range(10)]
    assert all(answers(*tables * 14)[-10:])


def test_another_shape_dtype_or_line_is_other_data() -> None:
    known = Repeats()
    table = np.zeros(64, np.float32)
    assert not known.again(1, table)
    for place, other in ((2, table), (1, table.reshape(8, 8)), (1, table.view(np.int32))):
        assert not known.again(place, other)
    assert known.again(1, table)


@pytest.mark.parametrize("lies", [lambda a: a.T, lambda a: a[:, ::3], lambda a: a[::-1], np.asfortranarray])
def test_however_it_lies_in_memory(lies: object) -> None:
    assert callable(lies)
    same = [lies(LARGE.copy()) for _ in range(4)]
    assert answers(*same) == [False, False, True, True]
    assert not any(answers(*(lies(LARGE + n) for n in range(4))))


def test_objects_are_never_looked_at() -> None:
    assert not any(answers(*[np.array(["a", None], object)] * 4))


def test_nothing_is_kept_alive() -> None:
    known, table = Repeats(), LARGE.copy()
    for _ in range(4):
        known.again("line 9", table)
    alive = weakref.ref(table)
    del table
    gc.collect()
    assert alive() is None


def test_its_share_of_the_time_is_bounded_and_the_last_answer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]

    def tick() -> int:  # each look takes 1 ms
        clock[0] += 1_000_000
        return clock[0]

    monkeypatch.setattr(repeats, "perf_counter_ns", tick)
    compared: list[int] = []
    mark = repeats._mark
    monkeypatch.setattr(repeats, "_mark", lambda array: compared.append(1) or mark(array))
    known = Repeats()
    found = [known.again("line 9", SMALL) for _ in range(2_000)]
    assert found[1:] == [True] * 1_999
    assert len(compared) <= repeats.AT_ONCE_NS / 1e6 + clock[0] * repeats.SHARE / 1e6 + 2
    assert len(compared) >= clock[0] * repeats.SHARE / 1e6


@given(st.integers(1, 40_000), st.sampled_from([np.uint8, np.float32, np.complex128, np.bool_]))
def test_any_array_can_be_asked_about(size: int, dtype: type) -> None:
    array = np.zeros(size, dtype)
    assert answers(array, array, array, array)[-1]
    array[-1] = 1
    assert answers(array, array)[0] is False
