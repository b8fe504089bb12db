"""The state line: what the program is doing, told from the analysis, the file and the process."""

from __future__ import annotations

import msgspec
import pytest

from xlaprof.analysis.model import Activity
from xlaprof.analysis.views.course import Bar, Course
from xlaprof.tui.snapshot import Snapshot, left_s, status

from .sample import report


def snapshot(**changes: object) -> Snapshot:
    run = report()
    usual = Snapshot(path="run.log", link="following", report=run, process="alive")
    return msgspec.structs.replace(usual, **changes)


def doing(state: str, since_s: float = 0.0, step: int = 24, detail: str = "") -> Snapshot:
    run = report(activity=Activity(state, step, since_s, detail))
    return snapshot(report=run, since_s=1.8)


def said(s: Snapshot) -> str:
    now = status(s)
    return f"{now.word} | {now.detail}"


def test_before_there_is_a_log() -> None:
    assert said(snapshot(link="absent", report=None)) == "waiting | for run.log to appear"
    assert said(snapshot(report=None)) == "waiting | for the first event in run.log"


def test_catching_up_says_how_far() -> None:
    assert said(snapshot(link="catching up", read=36_000_000, total=145_000_000)) == "reading | 25% of 138 MiB"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (doing("starting", step=-1), "starting | "),
        (doing("running"), "running | step 24"),
        (doing("compiling", 0.0, detail="train.py:7"), "compiling | 1.8 s · after step 24 · train.py:7"),
        (doing("waiting", 38.2, detail="train.py:9"), "waiting for a read | 40 s · after step 24 · train.py:9"),
    ],
)
def test_while_it_runs(seen: Snapshot, expected: str) -> None:
    assert said(seen) == expected


def test_silence_is_mentioned_once_it_is_long() -> None:
    assert said(snapshot(quiet_s=9)) == "running | step 24"
    assert said(snapshot(quiet_s=42)) == "running | step 24 · nothing recorded for 42 s"


def test_a_process_that_ended_without_closing_its_log_is_lost() -> None:
    now = status(snapshot(process="gone"))
    assert (now.word, now.detail, now.tone) == (
        "lost",
        "process 4242 ended without closing its log after step 24",
        "bad",
    )


def test_a_closed_log_is_finished_although_its_process_is_gone() -> None:
    done = snapshot(process="gone", report=report(finished=True, wall_s=12.3))
    assert said(done) == "finished | 25 steps in 12.3 s"
    failed = snapshot(process="gone", report=report(finished=True, wall_s=12.3, error="ValueError"))
    assert said(failed) == "failed | ValueError after 25 steps in 12.3 s"


def test_a_removed_log_keeps_what_was_read() -> None:
    gone = "run.log is gone; showing what was read"
    assert said(snapshot(link="removed")) == f"removed | {gone}"
    done = snapshot(report=report(finished=True, wall_s=12.3), link="removed")
    assert said(done) == f"finished | 25 steps in 12.3 s · {gone}"


def test_a_program_without_steps_is_not_counted_in_them() -> None:
    ran = msgspec.structs.replace(report(finished=True, wall_s=50.5), steps=())
    assert said(snapshot(report=ran)) == "finished | in 50.5 s"
    ran = msgspec.structs.replace(report(finished=True, wall_s=50.5, error="exit code 3"), steps=())
    assert said(snapshot(report=ran)) == "failed | exit code 3 after 50.5 s"


def test_only_what_goes_on_has_time_left() -> None:
    story = report()
    (stat,) = story.steps
    promised = msgspec.structs.replace(story, steps=(msgspec.structs.replace(stat, total=1_000),))
    bars = tuple(Bar(n, n, 1, n * 0.1, 0.1, 0.1, 0.0, ()) for n in range(25))
    going = snapshot(report=promised, course=Course(bars=bars))
    assert left_s(going) == pytest.approx((999 - stat.last_num) * 0.1)
    for ended in ({"process": "gone"}, {"link": "unreadable"}, {"link": "removed"}):
        assert left_s(msgspec.structs.replace(going, **ended)) is None, ended
