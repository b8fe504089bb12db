"""A thread that is met for the first time gets a number and a name, once."""

import gc
import threading
from pathlib import Path

import pytest
from recording import recording

from xlaprof import Trace
from xlaprof.events import Gc, Thread
from xlaprof.recording import gc_pauses


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


def test_a_thread_that_takes_the_identity_of_an_ended_one_is_another_thread(log: Path) -> None:
    def work() -> None:
        with Trace("work"):
            pass

    with recording(log) as recorded:
        for i in range(3):
            thread = threading.Thread(target=work, name=f"life {i}")
            thread.start()
            thread.join()
    assert [thread.name for thread in recorded().of(Thread)] == ["MainThread", "life 0", "life 1", "life 2"]


def test_a_collection_while_python_meets_a_thread_leaves_it_one_thread(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python makes what is local to a thread at its first access, and may collect garbage before it is there. The
    collection is recorded, with its thread: at the same access."""
    monkeypatch.setattr(gc_pauses, "PAUSE_NS", 0)  # each collection counts as a long one
    scope, threshold = Trace("work"), gc.get_threshold()

    def work(made: int) -> None:
        made_before = [{} for _ in range(made)]  # as many allocations before the first access: it is hit somewhere
        gc.set_threshold(120)
        with scope:
            pass
        gc.set_threshold(100_000)
        assert len(made_before) == made

    try:
        with recording(log) as recorded:
            for made in range(1, 130):
                gc.set_threshold(100_000)
                gc.collect()
                thread = threading.Thread(target=work, args=(made,), name=f"life {made}")
                thread.start()
                thread.join()
    finally:
        gc.set_threshold(*threshold)
    recorded = recorded()
    collected = {pause.tid for pause in recorded.of(Gc)}
    assert len(collected) > 10
    assert [thread.name for thread in recorded.of(Thread)] == ["MainThread", *(f"life {i}" for i in range(1, 130))]
