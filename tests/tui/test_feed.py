"""The feed: however a log is cut into slices, the same run comes out; and what it says of the file and the process."""

from __future__ import annotations

import gzip
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlaprof import log
from xlaprof.analysis.run import Run
from xlaprof.analysis.views.painting import View
from xlaprof.commands._looking import Whole
from xlaprof.log import LogError
from xlaprof.sources import files
from xlaprof.tui.feed import Feed, plain
from xlaprof.tui.snapshot import status

from .training import BEGAN, Training


def written_log(path: Path) -> None:
    """A closed log with a bit of everything."""
    story = Training(path)
    story.train_step(compile_ms=1500)
    story.train(30, read=True)
    story.train_step(compile_ms=900, shape="i64[5,128]")
    story.train(30)
    story.end()


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Callable[..., Feed]]:
    """Makes feeds on run.log that read one slice each time."""
    made = []

    def make(**changes: object) -> Feed:
        made.append(Feed(str(tmp_path / "run.log"), **{"clock": lambda: BEGAN, "budget_s": 0.0, **changes}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_log_that_was_complete_when_it_was_opened_is_shown(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    written_log(tmp_path / "run.log")
    whole = feed(slice_bytes=1 << 20)
    whole.open()  # reads all there is
    assert whole.advance().report is not None


@given(slice_bytes=st.integers(min_value=1, max_value=20_000))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_slices_of_any_size_give_the_report_of_the_whole(tmp_path: Path, slice_bytes: int) -> None:
    path = tmp_path / "run.log"
    if not path.exists():
        written_log(path)
    whole = Run().feed_all(log.read(path)).report(str(path))
    with closing(Feed(str(path), clock=lambda: BEGAN, budget_s=0.0, slice_bytes=slice_bytes)) as feed:
        slices = 1
        while (now := feed.advance()).link == "catching up":
            slices += 1
    assert slices == -(-path.stat().st_size // slice_bytes)
    assert now.report == plain(whole)


def test_catching_up_shows_how_far_it_has_got(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    written_log(tmp_path / "run.log")
    size = (tmp_path / "run.log").stat().st_size
    slow = feed(slice_bytes=size // 4 + 1)
    seen = [slow.advance() for _ in range(4)]
    assert [s.link for s in seen] == ["catching up", "catching up", "catching up", "following"]
    assert [round(4 * s.read / s.total) for s in seen] == [1, 2, 3, 4]
    assert status(seen[0]).word == "reading"
    steps = [s.report.steps[0].count for s in seen if s.report]
    assert steps == sorted(steps), "a report while it reads is never newer than the next"
    assert steps[-1] == 62, "the last one is of the whole log, however few were made on the way"


def test_a_log_in_which_nothing_happens_costs_no_report(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    story = Training(tmp_path / "run.log")
    story.train(3)
    idle = feed()
    first, second = idle.advance(), idle.advance()
    assert first.report is not None
    assert second.report is first.report
    story.train(1)
    third = idle.advance()
    assert third.report is not first.report
    story.leave()


def test_silence_is_measured_from_the_last_growth(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    story = Training(tmp_path / "run.log")
    story.train(3)
    now = [BEGAN]
    watch = feed(monotonic=lambda: now[0])
    assert watch.advance().quiet_s == 0
    now[0] += 42
    assert watch.advance().quiet_s == 42
    story.train(1)
    assert watch.advance().quiet_s == 0
    story.leave()


def test_a_half_written_line_is_not_news_until_it_is_whole(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    written_log(tmp_path / "whole.log")
    text = (tmp_path / "whole.log").read_bytes()
    path = tmp_path / "run.log"
    path.write_bytes(text[:-5])
    watch = feed(slice_bytes=1 << 20)
    before = watch.advance()
    assert before.report is not None
    assert not before.report.run.finished
    assert before.report.run.notes == (), "being in the middle of a line is no trouble of a log that grows"
    with path.open("ab") as file:
        file.write(text[-5:])
    after = watch.advance()
    assert after.report is not None
    assert after.report.run.finished


def test_a_process_that_was_killed_is_lost_and_its_last_words_are_read(
    tmp_path: Path, feed: Callable[..., Feed]
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        story = Training(tmp_path / "run.log", host=platform.node(), pid=child.pid, began=time.time())
        story.train(3)
        watch = feed(clock=time.time)
        watch.open()
        assert watch.advance().process == "alive"
        story.train(2)
        child.kill()
    now = watch.advance()
    assert now.process == "gone"
    assert status(now).word == "lost"
    assert status(now).detail == f"process {child.pid} ended without closing its log after step 4"
    story.leave()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x7fELF\x02\x01\x01" * 1000, "is not an xlaprof log"),
        (b"epoch 1 loss 2.3\n", "is not an xlaprof log"),
        (b'{"k":"text","id":1,"text":"x"}\n', "is not an xlaprof log"),
        (gzip.compress(b'{"k":"header"', mtime=0), "is compressed and grows no more: xlaprof report"),
        (gzip.compress(b'{"k":"header"', mtime=0x0A0A), "is compressed and grows no more: xlaprof report"),
    ],
    ids=["binary", "text", "headless", "gzip", "gzip with line feeds"],
)
def test_what_is_no_log_is_reported_before_anything_is_shown(
    tmp_path: Path, feed: Callable[..., Feed], content: bytes, complaint: str
) -> None:
    (tmp_path / "run.log").write_bytes(content)
    with pytest.raises(LogError, match=complaint):
        feed().open()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_no_bytes_stop_the_feed(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "run.log"
    story = Training(path)
    story.train(2)
    with path.open("ab") as file:
        file.write(junk)
        file.write(b"\n")
    story.leave()
    with closing(Feed(str(path), clock=lambda: BEGAN, budget_s=0.0)) as feed:
        now = feed.advance()
    assert now.report is not None
    assert now.report.steps[0].count >= 2


def test_snapshots_are_plain_values(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    written_log(tmp_path / "run.log")
    now = msgspec.structs.replace(feed(slice_bytes=1 << 20).advance(), recent=())  # events are known by their own tags
    assert msgspec.json.decode(msgspec.json.encode(now), type=type(now)) == now
    assert os.fspath(tmp_path) in now.path


def test_a_complete_recording_of_any_kind_is_fed_like_one_that_grows(tmp_path: Path) -> None:
    written_log(tmp_path / "run.log")
    packed = tmp_path / "run.log.gz"
    packed.write_bytes(gzip.compress((tmp_path / "run.log").read_bytes()))
    whole = Run().feed_all(log.read(packed)).report(str(packed))
    tail = Whole(files.read(packed))
    with closing(Feed(str(packed), clock=lambda: BEGAN, budget_s=0.0, slice_bytes=2_000, tail=tail)) as feed:
        feed.open()
        while (now := feed.advance()).link == "catching up":
            assert now.read < now.total
    assert now.report == plain(whole)


def test_nothing_is_left_of_the_history_of_another_run(tmp_path: Path, feed: Callable[..., Feed]) -> None:
    written_log(tmp_path / "run.log")
    reading = feed(slice_bytes=2_000)
    while (now := reading.advance()).link == "catching up":
        pass
    assert now.course == feed(slice_bytes=1 << 20).advance().course, "however it was read"
    painted = reading.paint(View(50))
    assert painted is not None
    assert [lane.title for lane in painted.lanes][-1] == "device idle"
    story = Training(tmp_path / "other.log", pid=77)
    story.train(4)
    story.leave()
    (tmp_path / "other.log").replace(tmp_path / "run.log")
    for _ in range(3):
        now = reading.advance()
    assert len(now.course.bars) == 3


def test_of_what_another_run_held_already_it_is_not_known_when_it_happened_last(
    tmp_path: Path, feed: Callable[..., Feed]
) -> None:
    written_log(tmp_path / "run.log")
    reading = feed()
    assert reading.advance().last == {}, "its findings were there when it was opened"
    (tmp_path / "other.log").write_bytes((tmp_path / "run.log").read_bytes())
    (tmp_path / "other.log").replace(tmp_path / "run.log")
    now = reading.advance()
    assert now.restarts == 1
    assert now.report is not None
    assert now.report.findings
    assert now.last == {}
    assert not now.fresh


def test_reports_of_a_log_that_grows_rest_in_between_and_nothing_is_missed(story: Training) -> None:
    story.train_step(compile_ms=1500)
    with closing(Feed("run.log", rest=1e9)) as resting, closing(Feed("run.log")) as restless:
        for feed in (resting, restless):
            assert feed.advance().report is not None
        story.train(10)
        later, now = resting.advance(), restless.advance()
        assert later.read == now.read == now.total, "both have read all there is"
        assert [one.report.steps[0].count for one in (later, now) if one.report is not None] == [1, 11]
        resting.rest = 0.0
        shown = resting.advance().report
        assert shown is not None
        assert shown.steps[0].count == 11, "though nothing has come since"


class Ticking:
    """A clock that goes on by a second, or ``tick``, whenever it is read: so a report takes a second."""

    def __init__(self, tick: float = 1.0) -> None:
        self.now, self._tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self._tick
        return self.now


def test_what_was_compiled_is_reported_far_sooner_than_more_steps(story: Training) -> None:
    story.train_step(compile_ms=1500)
    clock = Ticking()
    with closing(Feed("run.log", rest=2400.0, monotonic=clock)) as feed:
        first = feed.advance().report
        story.train(10)
        clock.now += 150.0
        assert feed.advance().report is first, "a training goes on: that may wait"
        story.train_step(compile_ms=900, shape="i64[5,128]")
        later = feed.advance().report
    assert later is not first
    assert later is not None
    assert [one.kind for one in later.findings] == ["recompile"]


def test_who_looks_often_has_no_more_reports_unless_something_was_compiled(story: Training) -> None:
    story.train_step(compile_ms=1500)
    clock = [100.0]
    with closing(Feed("run.log", calm_s=0.2, monotonic=lambda: clock[0])) as feed:
        first = feed.advance().report
        story.train(10)
        clock[0] += 0.1
        assert feed.advance().report is first
        clock[0] += 0.11
        second = feed.advance().report
        assert second is not first
        story.train_step(compile_ms=900, shape="i64[5,128]")
        assert feed.advance().report is not second


def test_reports_have_what_the_process_does_not_take_otherwise(story: Training) -> None:
    """While half of a share goes to reading and drawing, a report that takes as much as a tenth of a second comes twice
    as late as where nothing else is done; and where all of it goes there, as late as ever."""
    clock, cpu = Ticking(0.001), [50.0]
    for busy, between in ((0.0, 0.5), (0.1, 1.0), (0.2, 6.0)):
        # a report takes a thousandth of a second by this clock
        with closing(Feed("run.log", rest=6000.0, calm_s=0.2, share=0.2, monotonic=clock, cpu=lambda: cpu[0])) as feed:
            story.train(5)
            shown = first = feed.advance().report
            began = clock.now
            cpu[0] += 0.1
            while shown is first:
                story.train(1)
                before = clock.now
                clock.now += 0.04
                shown = feed.advance().report
                cpu[0] += busy * (clock.now - before)
            assert clock.now - began == pytest.approx(between, rel=0.15), busy


def test_between_two_reports_the_state_is_that_of_the_last_event(story: Training) -> None:
    story.train_step(compile_ms=1500)
    with closing(Feed("run.log", clock=lambda: BEGAN + 20.0, rest=1e9)) as resting:
        assert status(resting.advance()).detail == "step 0"
        story.train(10)
        assert status(resting.advance()).detail == "step 10", "though its report is made later"
        story.begin_to_compile()
        now = resting.advance()
        assert (status(now).word, now.report is not None and now.report.steps[0].count) == ("compiling", 1)


@pytest.mark.parametrize("seed", range(3))
def test_reports_of_a_log_that_grows_end_in_what_one_report_of_it_says(story: Training, seed: int) -> None:
    """Gains that passed were predicted from an earlier part of the run, and were near to those of that moment."""
    clock, chance = iter(range(10**9)), random.Random(seed)
    played = near = 0
    with closing(Feed("run.log", clock=lambda: BEGAN, monotonic=lambda: next(clock) / 1e3)) as feed:
        for turn in range(14):
            new = turn == 0 or chance.random() < 0.2
            story.train_step(900 * new, f"i64[{turn + 1},128]")
            for step in range(chance.randrange(20, 260)):
                story.train_step(read=step % 3 == 0)
            shown = feed.advance().report
            now = Run().feed_all(files.read("run.log")).report("run.log")
            assert shown is not None
            assert [one.id for one in shown.findings] == [one.id for one in now.findings]
            assert msgspec.structs.replace(shown, findings=(), predicted=None) == msgspec.structs.replace(
                plain(now), findings=(), predicted=None
            ), "only gains are predicted"
            for mine, its in zip(shown.findings, now.findings, strict=True):
                assert mine.gain_s == pytest.approx(its.gain_s, rel=0.05)
            played += shown == plain(now)
            near += shown != plain(now)
        assert played >= 3, "the first reports, and those of a run that is twice as long"
        assert near, "the others"
        story.end()
        shown = feed.advance().report
    assert shown == plain(Run().feed_all(files.read("run.log")).report("run.log"))


def test_of_a_log_that_grows_no_more_all_gains_are_its_own(story: Training) -> None:
    seconds = 0.0
    with closing(Feed("run.log", clock=lambda: BEGAN, monotonic=lambda: seconds)) as feed:
        story.train_step(compile_ms=1500)
        story.train(1_400, read=True)
        feed.advance()
        story.train(40, read=True)
        now = plain(Run().feed_all(files.read("run.log")).report("run.log"))
        assert feed.advance().report != now, "they are predicted from the first"
        seconds += 1.0
        assert feed.advance().report != now, "more may come"
        seconds += 1.5
        assert feed.advance().report == now
