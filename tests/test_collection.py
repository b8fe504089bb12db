"""Garbage collection in a program that must answer at any moment."""

from __future__ import annotations

import gc
import weakref

from xlaprof.collection import in_small_parts


class Window:
    """Something of a screen: it refers to itself."""

    def __init__(self) -> None:
        self.own = self


def test_a_search_finds_what_is_new_and_looks_at_nothing_that_was_there() -> None:
    """A recording is held; windows come and go."""
    searched: list[int] = []

    def told(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            searched.append(sum(map(len, map(gc.get_objects, range(3)))))

    recording = [[number] for number in range(200_000)]
    with in_small_parts() as search:
        assert not gc.isenabled()
        search()
        closed = weakref.ref(Window())
        held = [[number] for number in range(30_000)]
        gc.callbacks.append(told)
        try:
            search()
        finally:
            gc.callbacks.remove(told)
        assert closed() is None
        assert searched
        assert max(searched) < 60_000 < len(recording)
        few = weakref.ref(Window())
        search()
        assert few() is not None, "a search is not worth it yet"
        del held
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert few() is None
