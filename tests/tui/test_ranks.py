"""``xlaprof live DIR``: all ranks of a program, late ones, dead ones, and the one that the others wait for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranked import RankStory

from xlaprof import cli
from xlaprof.commands._looking import desk
from xlaprof.events import DynamoCompile, Guard, Recompile
from xlaprof.tui.app import LiveApp
from xlaprof.tui.fleet import FleetFeed

from .conftest import news, screen
from .training import BEGAN, Training

Follow = Callable[..., LiveApp]


class Clock:
    """Of the machine on which it is looked, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10.0  # the folder is looked at each time
        return self.now


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follow]:
    """Makes apps on the logs of this test's folder that read when asked to."""
    feeds = []

    def make() -> LiveApp:
        feeds.append(FleetFeed(str(tmp_path / "logs"), clock=lambda: BEGAN + 2.0, monotonic=Clock()))
        feeds[-1].open()
        return LiveApp(feeds[-1].advance, every_s=None, desk=desk(feeds[-1]))

    (tmp_path / "logs").mkdir()
    yield make
    for feed in feeds:
        feed.close()


def rank(tmp_path: Path, number: int, name: str = "run", **fields: object) -> RankStory:
    return RankStory(number, path=tmp_path / "logs" / f"{name}.rank{number}.log", **fields)  # type: ignore[arg-type]


async def test_the_slowest_rank_and_the_program_of_one_rank_alone_are_on_the_screen(
    tmp_path: Path, follow: Follow
) -> None:
    rank(tmp_path, 0).train(30).finish_and_close()
    rank(tmp_path, 1).train(15, data=25).train(1, data=25, shape="i64[5,128]").train(14, data=25).finish_and_close()
    rank(tmp_path, 2).train(30).finish_and_close()
    app = follow()
    async with app.run_test(size=(160, 45)) as pilot:
        shown = await news(app, pilot)
        assert app.focused is not None
        assert app.focused.id == "ranks-table", "it is what a folder opens on"
        assert "Ranks  3 of 3, the other panels show rank 0" in shown
        assert re.search(r"Rank 1 is the slowest: 2\d ms later in each step", shown)
        assert re.search(r"between steps +25 ms, 1.0 ms on the others", shown)
        assert "idle gap at train.py:12" in shown
        assert "for batch in loader:" in shown
        assert "1 program that only some ranks compiled" in shown
        assert "rank 1, in step 15" in shown
        assert "shape of input 0 of aten::embedding: i64[8,128]" in shown


async def test_enter_shows_the_rank_in_all_other_panels(tmp_path: Path, follow: Follow) -> None:
    for number in range(2):
        rank(tmp_path, number, world=2).train(30, data=25 if number else 1).finish_and_close()
    app = follow()
    async with app.run_test(size=(160, 45)) as pilot:
        assert "rank 0/2" in await news(app, pilot)
        await pilot.press("down", "enter")
        await pilot.pause()
        shown = screen(app)
        assert "rank 1/2" in shown
        assert "● idle gap" in shown
        await pilot.press("r")
        await pilot.pause()
        assert "the other panels show rank 1" in screen(app)


async def test_a_function_that_one_rank_compiles_alone_is_told_with_its_reason(tmp_path: Path, follow: Follow) -> None:
    for number in range(2):
        story = rank(tmp_path, number, world=2).train(20)
        if number:
            where = {"stack": story.input_line, "code": story.line(10, "def forward(self, x):"),
                     "func": story.text("Net.forward")}  # fmt: skip
            guard = Guard("shape", "x", "f32[16]", "f32[32]", dim=0)
            story.emit(Recompile(t=story.now, compile="0/1", guards=[guard], versions=1, **where))
            story.emit(DynamoCompile(story.now, 3_000_000, "0/1", ops=4, **where))
        story.finish_and_close()
    app = follow()
    async with app.run_test(size=(160, 45)) as pilot:
        shown = " ".join((await news(app, pilot)).split())
        assert "Net.forward" in shown
        assert "rank 0: 0 graphs" in shown
        assert "shape of x: f32[16] -> f32[32]" in shown
        assert "All ranks have compiled the same" not in shown


async def test_ranks_join_late_and_die_and_are_shown_as_what_they_are(tmp_path: Path, follow: Follow) -> None:
    app = follow()
    async with app.run_test(size=(120, 40)) as pilot:
        assert "Waiting for logs of ranks in" in await news(app, pilot)
        first = rank(tmp_path, 0, host=os.uname().nodename, pid=os.getpid(), unix_ns=int(time.time() * 1e9))
        first.train(10)
        shown = await news(app, pilot)
        assert "Ranks  1 of 3" in shown
        assert len(re.findall(r"^ +\d no log", shown, re.MULTILINE)) == 2
        assert re.search(r"^ +0 running", shown, re.MULTILINE)
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        second = rank(tmp_path, 1, host=os.uname().nodename, pid=gone.pid)
        second.train(10, data=25)
        second.leave()
        rank(tmp_path, 2).train(10).finish_and_close("OutOfMemoryError")
        await news(app, pilot)  # whose log it is, is known from now on
        shown = await news(app, pilot)
        assert "Ranks  3 of 3" in shown
        assert re.search(r"^ +0 running", shown, re.MULTILINE)
        assert re.search(r"^ +1 lost", shown, re.MULTILINE)
        assert re.search(r"^ +2 failed", shown, re.MULTILINE)
        assert "Rank 1 is the slowest" in shown
        first.leave()


async def test_of_two_programs_in_a_folder_the_later_is_shown(tmp_path: Path, follow: Follow) -> None:
    for number in range(2):
        rank(tmp_path, number, world=2, argv=["first.py"]).train(3).finish_and_close()
    app = follow()
    async with app.run_test(size=(160, 40)) as pilot:
        assert "first.py" in await news(app, pilot)
        begun = int((BEGAN + 100) * 1e9)
        for number in range(2):
            rank(tmp_path, number, "again", world=2, argv=["second.py"], unix_ns=begun).train(3).finish_and_close()
        shown = await news(app, pilot)
        assert "second.py" in shown
        assert "1 earlier program in the folder left out" in shown


async def test_what_is_no_log_in_the_folder_is_left_alone(tmp_path: Path, follow: Follow) -> None:
    folder = tmp_path / "logs"
    (folder / "model.pt").write_bytes(b"\x00\xff" * 300_000)
    (folder / "notes.txt").write_text("loss 0.1\n")
    os.mkfifo(folder / "pipe")
    (folder / "gone.log").symlink_to("nowhere")
    (folder / "single.log").symlink_to(tmp_path / "single.log")
    single = Training(tmp_path / "single.log")
    single.train(2)
    rank(tmp_path, 0, world=2).train(5)
    app = follow()
    async with app.run_test(size=(60, 15)) as pilot:
        shown = await news(app, pilot)
        assert re.search(r"^ +0 running", shown, re.MULTILINE)
        assert re.search(r"^ +1 no log", shown, re.MULTILINE)
    single.leave()


def test_a_folder_without_ranks_names_the_log_to_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Training(tmp_path / "run.log")
    story.end()
    for verb in ("live", "tui"):
        assert cli.main([verb, str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert f"{tmp_path} has no logs of several ranks: name one of its logs, {tmp_path / 'run.log'}" in said


SCRIPT = """
import sys, xlaprof
for step in range(60):
    with xlaprof.StepTrace("train", step_num=step):
        pass
sys.stdin.read()
"""


async def test_real_processes_record_and_one_of_them_is_killed(tmp_path: Path, follow: Follow) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "xlaprof", "run", "--no-report", "-o", str(tmp_path / "logs/run.log"), "train.py"]
    processes = [
        subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.PIPE, env={**os.environ, "RANK": str(number), "WORLD_SIZE": "2"}
        )
        for number in range(2)
    ]
    app = follow()
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            deadline = time.monotonic() + 60
            while "steps 1 to 59" not in (shown := await news(app, pilot)):
                assert time.monotonic() < deadline, shown
            processes[1].send_signal(signal.SIGKILL)
            processes[1].wait()
            assert processes[0].stdin is not None
            processes[0].stdin.close()
            assert processes[0].wait(60) == 0
            shown = await news(app, pilot)
            assert re.search(r"^ +0 finished", shown, re.MULTILINE)
            assert re.search(r"^ +1 lost", shown, re.MULTILINE)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
