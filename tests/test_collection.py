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

    now = [0.0]
    recording = [[number] for number in range(200_000)]
    with in_small_parts(lambda: now[0]) as search:
        assert not gc.isenabled()
        search()
        closed = weakref.ref(Window())
        open_ = [Window()]
        seen = weakref.ref(open_[0])
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
        open_.clear()
        search()
        assert seen() is not None, "it outlived a search"
        now[0] += 601
        search()
        assert seen() is few() is None, "once in ten minutes all is searched"
        few = weakref.ref(Window())
        del held
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert few() is None
