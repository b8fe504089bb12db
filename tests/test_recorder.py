"""A recording from start to stop: what reaches the log, in which order, and what happens when something is wrong."""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import Recorded, recording

import xlaprof
from xlaprof import RecordingError
from xlaprof.events import (
    Compile,
    Counters,
    Dropped,
    End,
    Event,
    Fallback,
    Gc,
    Header,
    Scope,
    Stack,
    Step,
    Text,
)
from xlaprof.recording import gc_pauses, looks, recorder, stacks
from xlaprof.recording.stacks import RawFrame


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a recording whose events are counted: no looks at the main thread, which a slow machine adds."""
    monkeypatch.setattr(looks, "EVERY_NS", 1 << 60)
    return tmp_path / "run.log"


@pytest.fixture
def observers() -> Iterator[None]:
    """Observers of a test are forgotten after it."""
    before = list(recorder._observers)
    yield
    recorder._observers[:] = before


def active() -> recorder.Recorder:
    assert recorder.active is not None
    return recorder.active


def test_a_log_begins_with_its_header_and_ends_with_its_end(log: Path) -> None:
    with recording(log) as recorded:
        pass
    events = recorded().events
    assert isinstance(events[0], Header)
    assert isinstance(events[-1], End)
    header = events[0]
    assert header.pid == os.getpid()
    assert header.cwd == os.getcwd()
    assert header.argv == sys.argv
    assert header.versions["xlaprof"] == xlaprof.__version__
    assert events[-1].t >= header.mono_ns
    assert recorder.active is None


def test_start_and_stop(log: Path) -> None:
    rec = xlaprof.record(log)
    assert recorder.active is None
    rec.start()
    assert recorder.active is not None
    rec.stop()
    rec.stop()  # once more does no harm
    assert recorder.active is None
    assert isinstance(Recorded(log).events[-1], End)


def test_functions_start_and_stop_too(log: Path) -> None:
    xlaprof.start_recording(log)
    xlaprof.stop_recording()
    assert isinstance(Recorded(log).events[-1], End)
    with pytest.raises(RecordingError, match="nothing is being recorded"):
        xlaprof.stop_recording()


def test_an_object_may_record_again(log: Path) -> None:
    rec = xlaprof.record(log)
    for name in ("first", "second"):
        with rec, xlaprof.Trace(name):
            pass
    assert Recorded(log).scopes == [("second", 0)]


def test_a_second_recording_is_refused_and_the_first_goes_on(log: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.log"
    with recording(log) as recorded:
        with pytest.raises(RecordingError) as refused:
            xlaprof.record(second).start()
        with xlaprof.Trace("still recorded"):
            pass
    assert str(log) in str(refused.value)
    assert "stop_recording()" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not second.exists()
    assert recorded().scopes == [("still recorded", 0)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p, "Is a directory"),
        (lambda p: p / "missing" / "run.log", "No such file or directory"),
        (lambda p: p / "a\0b", "null byte"),
        (lambda p: p / ("x" * 300), "File name too long"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, make: Any, says: str) -> None:
    with pytest.raises(RecordingError, match=says):
        xlaprof.record(make(tmp_path)).start()
    assert recorder.active is None


def test_an_existing_file_is_kept_where_asked(log: Path) -> None:
    with xlaprof.record(log), xlaprof.Trace("precious"):
        pass
    before = log.read_bytes()
    with pytest.raises(RecordingError, match="will not overwrite without overwrite=True"):
        xlaprof.record(log, overwrite=False).start()
    assert log.read_bytes() == before
    with xlaprof.record(log):
        pass
    assert isinstance(Recorded(log).events[0], Header)


def test_detail_is_one_of_two_words(log: Path) -> None:
    with pytest.raises(RecordingError, match="detail must be 'auto' or 'full', not 'some'"):
        xlaprof.record(log, detail="some")  # type: ignore[arg-type]


def test_ranks_write_files_of_their_own(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with xlaprof.record(log):
        pass
    with xlaprof.record(log.with_name("{rank}-of-all.log")):
        pass
    assert sorted(path.name for path in log.parent.iterdir()) == ["3-of-all.log", "run.rank3.log"]
    (header,) = Recorded(log.with_name("run.rank3.log")).of(Header)
    assert (header.rank, header.world) == (3, 4)


def test_an_exception_that_ends_the_recording_is_named_and_raised_on(log: Path) -> None:
    with pytest.raises(KeyError), recording(log) as recorded:
        raise KeyError("x")
    assert recorded().of(End)[0].error == "KeyError"


def test_leaving_by_sys_exit_is_an_error_only_with_a_code(log: Path) -> None:
    for code, error in ((0, ""), (None, ""), (3, "exit code 3"), ("sorry", "exit code 1")):
        with pytest.raises(SystemExit), recording(log) as recorded:
            sys.exit(code)
        assert recorded().of(End)[0].error == error


def test_ids_are_defined_before_they_are_used_by_whatever_thread(log: Path) -> None:
    def work(seed: int) -> None:
        rec = active()
        for i in range(300):
            frames = tuple(stacks.RawFrame(f"file{(seed * 7 + i) % 97}.py", i % 13, f"f{i % 5}") for _ in range(2))
            rec.emit(Fallback(i, 1, rec.text(f"aten::op{(i * 3 + seed) % 51}"), rec.stack(frames), rec.thread()))

    with recording(log) as recorded:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    texts: set[int] = {0}
    places: set[int] = {0}
    fallbacks = 0
    for event in recorded().events:
        if isinstance(event, Text):
            assert event.id not in texts
            texts.add(event.id)
        elif isinstance(event, Stack):
            assert event.id not in places
            assert texts.issuperset({id for f in event.frames for id in (f.file, f.func, f.code)} | {event.module})
            places.add(event.id)
        elif isinstance(event, Fallback):
            assert event.op in texts
            assert event.stack in places
            fallbacks += 1
    assert fallbacks == 6 * 300


def test_a_place_carries_its_source_line(log: Path) -> None:
    with recording(log) as recorded:
        rec = active()
        place = rec.stack(stacks.user_frames(), "Decoder/Block")  # the line of the place
        assert rec.stack(()) == 0
        assert rec.text("") == 0
    recorded = recorded()
    (stack,) = recorded.of(Stack)
    assert stack.id == place
    assert recorded.texts[stack.module] == "Decoder/Block"
    frame = stack.frames[0]
    assert recorded.texts[frame.file] == __file__
    assert recorded.texts[frame.code].endswith("# the line of the place")


def test_interning_is_bounded_and_says_so(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlaprof.recording.intern.TEXT_LIMIT", 10)
    monkeypatch.setattr("xlaprof.recording.intern.STACK_LIMIT", 3)
    with recording(log) as recorded:
        rec = active()
        for i in range(50):
            with xlaprof.Trace(f"batch {i}"):
                pass
            rec.stack((stacks.RawFrame("same.py", i, "f"),))
    recorded = recorded()
    assert len(recorded.of(Scope)) == 50
    assert "(too many different names)" in [name for name, _ in recorded.scopes]
    assert len(recorded.of(Stack)) == 3
    (dropped,) = recorded.of(Dropped)
    assert dropped.why == "names"
    assert dropped.count >= 80


def test_a_full_queue_drops_and_counts(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "QUEUE_LIMIT", 100)
    rec = recorder.Recorder(str(log))  # its writer is not running: it cannot keep up at all
    for i in range(250):
        rec.emit(Fallback(i, 1, rec.text("aten::op")))
    rec._start()
    rec._close("")
    recorded = Recorded(log)
    assert [event.t for event in recorded.of(Fallback)] == list(range(98))  # beside the Thread and the Text
    assert [(dropped.count, dropped.why) for dropped in recorded.of(Dropped)] == [(152, "queue")]
    assert isinstance(recorded.events[-1], End)


def test_one_event_that_cannot_be_encoded_is_counted_and_costs_no_other(log: Path) -> None:
    with recording(log) as recorded:
        rec = active()
        rec.emit(Scope(rec.text("before"), 1, 1))
        rec.emit(Scope(rec.text("bad"), 1, 1, meta={"x": object()}))  # type: ignore[dict-item]
        rec.emit(object())  # type: ignore[arg-type]
        rec.emit(Scope(rec.text("after"), 1, 1))
    recorded = recorded()
    assert [name for name, _ in recorded.scopes] == ["before", "after"]
    assert sum(dropped.count for dropped in recorded.of(Dropped) if dropped.why == "encode") == 2


@pytest.mark.parametrize("detail", ["full", "auto"])
def test_a_place_that_cannot_be_written_is_counted_and_costs_no_other(log: Path, detail: str) -> None:
    with recording(log, detail) as recorded:
        rec = active()
        rec.stack((RawFrame(__file__, None, "nowhere"),))  # type: ignore[arg-type]
        rec.emit(Scope(rec.text("after"), 1, 1))
    found = recorded()
    assert found.scopes == [("after", 0)]
    (dropped,) = found.of(Dropped)
    assert (dropped.count, dropped.why, dropped.detail[:9]) == (1, "encode", "NewStack:")


def test_nothing_reaches_a_log_that_is_closed(log: Path) -> None:
    with recording(log) as recorded:
        rec = active()
    size = log.stat().st_size
    rec.emit(Compile(1, 1, 1, "a", 1, 1, 1))
    rec.step(Step(rec.text("late"), 1, 1, 1))
    assert rec.stack(stacks.user_frames()) > 0
    assert log.stat().st_size == size
    assert isinstance(recorded().events[-1], End)


class Runtime:
    """An observer with counters, as a runtime is one."""

    def __init__(self) -> None:
        self.compiles = 10
        self.seconds = 1.5
        self.heard: list[str] = []

    def attach(self, rec: recorder.Recorder) -> "Runtime":
        self.rec = rec
        self.heard.append(f"started {rec is recorder.active}")
        return self

    def detach(self) -> None:
        self.heard.append(f"stopping {self.rec is recorder.active}")
        self.rec.emit(Compile(1, 1, 1, "last word", 1, 1, 1))

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {"CompileTime": self.compiles, "Untouched": 5}, {"CompileTime": self.seconds}


@pytest.mark.usefixtures("observers")
def test_observers_hear_of_recordings_and_their_counters_are_totals_since_the_beginning(log: Path) -> None:
    runtime = Runtime()
    recorder.add_observer(runtime)
    recorder.add_observer(runtime)
    assert runtime.heard == []
    with recording(log) as recorded:
        runtime.compiles += 2
        runtime.seconds += 0.25
    assert runtime.heard == ["started True", "stopping True"]
    recorded = recorded()
    last = recorded.of(Counters)[-1]
    assert last.counts["CompileTime"] == 2
    assert last.seconds["CompileTime"] == pytest.approx(0.25)
    assert "Untouched" not in last.counts
    assert recorded.of(Compile)[0].graph == "last word"


@pytest.mark.usefixtures("observers")
def test_an_observer_that_comes_late_is_attached_at_once(log: Path) -> None:
    runtime = Runtime()
    with recording(log):
        recorder.add_observer(runtime)
        assert runtime.heard == ["started True"]


@pytest.mark.usefixtures("observers")
def test_counters_are_written_at_steps_but_not_at_each(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.add_observer(Runtime())
    clock = iter(range(0, 10**15, 30_000_000))  # every look at it finds 30 ms gone
    monkeypatch.setattr("xlaprof.recording.recorder.time.perf_counter_ns", lambda: next(clock))
    with recording(log) as recorded:
        for i in range(40):
            active().step(Step(active().text("train"), i, 1, 1))
    recorded = recorded()
    assert 4 <= len(recorded.of(Counters)) <= 15
    assert len(recorded.of(Step)) == 40


@pytest.mark.usefixtures("observers")
def test_a_broken_observer_breaks_nothing(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(Runtime):
        def counters(self) -> tuple[dict[str, int], dict[str, float]]:
            raise RuntimeError("counters are broken")

        def detach(self) -> None:
            raise RuntimeError("cannot stop")

    class BreaksLater(Runtime):
        def detach(self) -> None:
            raise RuntimeError("cannot stop")

    recorder.add_observer(Broken())
    recorder.add_observer(BreaksLater())
    with recording(log) as recorded, xlaprof.Trace("work"):
        pass
    assert recorded().scopes == [("work", 0)]
    complaints = capsys.readouterr().err.splitlines()
    assert complaints == [
        "xlaprof: Broken is not observed: RuntimeError: counters are broken",
        "xlaprof: BreaksLater records nothing more: RuntimeError: cannot stop",
    ]


def test_a_listener_hears_what_is_written_and_a_broken_one_is_let_go(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Event] = []

    def listen(event: Event) -> None:
        heard.append(event)
        if isinstance(event, Scope):
            raise ZeroDivisionError

    with xlaprof.record(log, detail="full"):
        assert recorder.active is not None
        recorder.active.listen(listen)
        for _ in range(2):
            with xlaprof.Trace("work"):
                pass
    assert sum(isinstance(event, Scope) for event in heard) == 1
    assert len(Recorded(log).of(Scope)) == 2
    assert "no more early warnings: ZeroDivisionError" in capsys.readouterr().err


def test_garbage_collections_are_counted_and_long_ones_reported(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks = list(gc.callbacks)
    with recording(log) as recorded:
        monkeypatch.setattr(gc_pauses, "PAUSE_NS", 0)
        gc.collect()
        monkeypatch.setattr(gc_pauses, "PAUSE_NS", 10**18)
        gc.collect()
    assert gc.callbacks == callbacks
    recorded = recorded()
    pauses = recorded.of(Gc)
    assert pauses
    assert pauses[-1].generation == 2
    counters = recorded.of(Counters)[-1]
    assert counters.counts["GarbageCollection"] > len(pauses)
    assert counters.seconds["GarbageCollection"] >= sum(pause.dur for pause in pauses) / 1e9


def test_a_collection_in_a_thread_that_runs_no_line_of_the_programs_has_no_line(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc_pauses, "PAUSE_NS", 0)
    with recording(log) as recorded:
        gc.collect()
        gc.disable()
        library = threading.Thread(target=gc.collect)  # its frames are threading's own
        library.start()
        library.join()
        gc.enable()
    mine, theirs = [pause for pause in recorded().of(Gc) if pause.generation == 2][-2:]
    assert mine.stack
    assert not theirs.stack


def test_collections_of_several_threads_are_not_mixed_up(log: Path) -> None:
    """Finalizers that record, run by a collection in the middle of whatever this thread was doing."""

    class Leaves:
        def __init__(self, name: str) -> None:
            self.me, self.name = self, name

        def __del__(self) -> None:
            with xlaprof.Trace(self.name):
                pass

    with recording(log) as recorded:
        for i in range(200):
            Leaves(f"finalizer {i}")
            with xlaprof.Trace(f"scope {i}"):
                pass
        gc.collect()
    names = [name for name, _ in recorded().scopes]
    assert {f"finalizer {i}" for i in range(200)} <= set(names)
    assert {f"scope {i}" for i in range(200)} <= set(names)


def test_events_keep_the_order_in_which_a_thread_emitted_them(log: Path) -> None:
    with recording(log) as recorded:
        for i in range(10_000):
            active().emit(Fallback(i, 1, 0))
    assert [event.t for event in recorded().of(Fallback)] == list(range(10_000))


@pytest.mark.usefixtures("observers")
def test_a_recording_stopped_while_it_is_being_stopped_is_stopped_once(log: Path) -> None:
    class Impatient(Runtime):
        """As a signal handler that arrives in the middle."""

        def detach(self) -> None:
            if not self.heard.count("stop"):
                self.heard.append("stop")
                xlaprof.stop_recording()

    recorder.add_observer(Impatient())
    with recording(log) as recorded, xlaprof.Trace("work"):
        pass
    recorded = recorded()
    assert recorded.scopes == [("work", 0)]
    assert len(recorded.of(End)) == 1
    assert isinstance(recorded.events[-1], End)
    assert recorder.active is None


def test_a_writer_that_is_late_is_let_in_where_a_scope_ends(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keeps its thread from running by itself: what has ended is written before the program goes on."""
    monkeypatch.setattr("xlaprof.recording.writer.PERIOD_S", 3600.0)
    monkeypatch.setattr("xlaprof.recording.writer.LET_IN_S", 60.0)
    with xlaprof.record(log):
        active().due = 0
        with xlaprof.Trace("work"):
            pass
        assert Recorded(log).scopes == [("work", 0)]


def test_a_turn_of_the_writer_ends_though_events_keep_coming(log: Path) -> None:
    with xlaprof.record(log):
        active().listen(lambda event: active().emit(event) if isinstance(event, Fallback) else None)
        active().emit(Fallback(1, 1, 0))
        assert active().flush()
        assert Recorded(log).of(Fallback)
        active().listen(lambda event: None)
