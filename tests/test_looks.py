"""What the main thread does all along is looked up a few times a second: at which line it runs, and what it imports."""

import importlib
import sys
import threading
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from xlaprof.events import Event, Look
from xlaprof.recording import looks, stacks
from xlaprof.recording.looks import EVERY_NS, Looks
from xlaprof.recording.stacks import RawFrame

SECOND = 1_000_000_000


class Watched:
    """A recording's looks, under a clock that only this test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        monkeypatch.setattr(time, "perf_counter_ns", lambda: self.now)
        self.events: list[Look] = []
        self.places: list[tuple[RawFrame, ...]] = []
        self.looks = Looks(self._emit, self._stack)

    def _emit(self, event: Event) -> None:
        assert isinstance(event, Look)
        self.events.append(event)

    def _stack(self, frames: tuple[RawFrame, ...]) -> int:
        self.places.append(frames)
        return len(self.places)

    def look_after(self, ns: int) -> None:
        """To be called in another thread, which looks at the one that waits for it."""
        self.now += ns
        self.looks.look()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Write a module of an installed package, and of the program's own; returns its name."""
    for folder in ("site-packages", "program"):
        (tmp_path / folder).mkdir()
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    made = []

    def write(folder: str) -> str:
        name = f"looked_at_in_{folder.replace('-', '_')}"
        (tmp_path / folder / f"{name}.py").write_text("import sys\nsys.looked_at.submit(*sys.looking).result()\n")
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)


def test_the_line_that_runs_is_recorded_until_another_runs(watched: Watched, other: ThreadPoolExecutor) -> None:
    for _ in range(3):
        other.submit(watched.look_after, SECOND // 10).result()
    other.submit(watched.look_after, SECOND // 10).result()
    watched.looks.end(watched.now)
    first, second = watched.events
    assert (first.t, first.dur, first.state) == (50_000_000, 300_000_000, "python")  # it changed in between
    assert (second.t, second.dur) == (350_000_000, 50_000_000)
    (one, *_), (next_one, *_) = watched.places
    assert (one.file, one.line + 1) == (__file__, next_one.line)


def test_looks_are_few(watched: Watched, other: ThreadPoolExecutor) -> None:
    other.submit(watched.look_after, EVERY_NS - 1).result()
    watched.looks.end(watched.now)
    assert not watched.events


def test_a_long_activity_is_recorded_bit_by_bit(watched: Watched, other: ThreadPoolExecutor) -> None:
    for _ in range(24):
        other.submit(watched.look_after, SECOND // 8).result()
    first, second = (event.dur for event in watched.events)  # while it still goes on
    assert first + second == 2 * SECOND + SECOND // 16
    assert max(first, second) < 1.2 * SECOND


def test_what_a_library_runs_for_the_users_line_is_recorded_with_it(
    watched: Watched, other: ThreadPoolExecutor, tmp_path: Path, library: Callable[[str], str]
) -> None:
    """The function of a library that takes the time, as for a checkpoint, tells the option that decides how often."""
    folder = tmp_path / "site-packages" / "saver_of_looks" / "safetensors"
    folder.mkdir(parents=True)
    write = "def write(look, other):\n    other.submit(look, 200_000_000).result()\n"
    (folder / "writes.py").write_text(write)
    (folder.parent / "fits.py").write_text(
        f"from .safetensors import writes\n{write}save = lambda *given: writes.write(*given)\n"
    )
    fits = importlib.import_module("saver_of_looks.fits")
    for call in (fits.write, fits.save):
        call(watched.look_after, other)
    watched.looks.end(watched.now)
    assert [event.state for event in watched.events] == ["python", "checkpoint"]
    plain, saved = watched.places
    assert plain[0].file == saved[0].file == __file__
    for place, funcs in ((plain, ["write"]), (saved, ["<lambda>"])):
        assert [Path(one.frame.file).name for one in stacks.library(place)] == ["fits.py"]
        assert [one.frame.func for one in stacks.library(place)] == funcs


def test_an_import_of_a_library_is_told_from_the_programs_own_work(
    watched: Watched, other: ThreadPoolExecutor, library: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "looked_at", other, raising=False)
    monkeypatch.setattr(sys, "looking", (watched.look_after, EVERY_NS), raising=False)
    __import__(library("site-packages"))
    __import__(library("program"))
    watched.looks.end(watched.now + EVERY_NS)
    assert [event.state for event in watched.events] == ["import", "python"]
    (imports,), (runs, *_) = watched.places
    assert imports.file == __file__
    assert runs.file.endswith("looked_at_in_program.py")


def test_the_import_of_dynamos_compiler_is_an_import_and_no_compile(
    watched: Watched, other: ThreadPoolExecutor, library: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "looked_at", other, raising=False)
    monkeypatch.setattr(sys, "looking", (watched.look_after, EVERY_NS), raising=False)
    name = library("site-packages")
    monkeypatch.setattr(looks, "_COMPILES", f"{name}.py")
    __import__(name)
    watched.looks.end(watched.now + EVERY_NS)
    assert [event.state for event in watched.events] == ["import"]


def test_nothing_is_recorded_where_an_event_says_it(
    watched: Watched, other: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "_COMPILES", Path(__file__).name)  # as if this were Dynamo's compiler
    other.submit(watched.look_after, EVERY_NS).result()
    watched.looks.end(watched.now + EVERY_NS)
    assert not watched.events


def test_nor_while_inductor_compiles_a_backward_graph(watched: Watched, other: ThreadPoolExecutor) -> None:
    """It does so within the first backward(), where no frame is Dynamo's."""

    def compile_fx_inner() -> None:
        other.submit(watched.look_after, EVERY_NS).result()

    compile_fx_inner()
    watched.looks.end(watched.now + EVERY_NS)
    assert not watched.events


def test_nor_where_a_thread_that_only_pytorch_knows_compiles_it(watched: Watched, other: ThreadPoolExecutor) -> None:
    """On a GPU autograd's thread does, which was not made by Python's threading, and the main thread waits for it."""
    compiling, over, looked = allocate_lock(), allocate_lock(), allocate_lock()
    for lock in (compiling, over, looked):
        lock.acquire()

    def compile_fx_inner() -> None:
        compiling.release()
        over.acquire()

    def look() -> None:
        main = threading.main_thread().ident or 0
        with stacks.looking:
            while stacks.running(main)[0].f_code.co_name != stacks.WAITS_FOR_BACKWARD:
                pass
        watched.look_after(EVERY_NS)
        looked.release()

    def _engine_run_backward() -> None:
        looked.acquire()

    start_new_thread(compile_fx_inner, ())
    compiling.acquire()
    done = other.submit(look)
    _engine_run_backward()
    over.release()
    done.result()
    watched.looks.end(watched.now + EVERY_NS)
    assert not watched.events
