"""``xlaprof report DIR``: all ranks of a program on one page, with the one that is late and what was found on which."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ranked import RankStory
from story import MS, Story, clean, save

from xlaprof.cli import main
from xlaprof.events import DynamoCompile, Guard, Look, Recompile


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Three ranks; the batches of rank 1 come late, and it compiles a program that the others do not; of four."""
    (tmp_path / "logs").mkdir()
    for number in range(3):
        path = tmp_path / "logs" / f"run.rank{number}.log"
        story = RankStory(number, world=4, path=path)
        data = 25 if number == 1 else 1
        story.train(15, data=data)
        if number == 1:
            story.train(1, data=data, shape="i64[5,128]")
        story.train(15 if number != 1 else 14, data=data)
        story.finish_and_close()
    return tmp_path / "logs"


def told(logs: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert main(["report", str(logs), *options]) == 0
    return capsys.readouterr().out


def test_the_page_names_the_late_rank_and_what_was_found_on_which(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = " ".join(told(logs, capsys).split())
    assert "3 of 4 ranks" in page
    assert "! no log of rank 3" in page
    assert re.search(r"Rank 1 is the slowest: 2\d ms later in each step than the others, which wait for it", page)
    assert re.search(r"between steps 25 ms, 1.0 ms on the others", page)
    assert "rank 1, in step 15" in page
    assert re.search(r"1 idle_gap (high|medium) on rank 1 .* costs \d+ ms on rank 1", page)
    assert "xlaprof report" in page


def test_the_json_has_each_ranks_own_report(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(told(logs, capsys, "--json"))
    assert (shown["schema"], shown["world"], shown["missing"]) == (1, 4, [3])
    assert shown["slow"]["rank"] == 1
    assert shown["slow"]["parts"][0]["part"] == "between steps"
    assert [one["ranks"] for one in shown["divergences"]] == [[1]]
    for one in shown["ranks"]:
        alone = json.loads(told(Path(one["path"]), capsys, "--json"))
        assert one["report"] == alone
        by = {
            found["id"]: row["cost_s"]
            for found in shown["findings"]
            for row in found["by"]
            if row["rank"] == one["rank"]
        }
        assert by == {found["id"]: found["cost_s"] for found in alone["findings"]}
    first = shown["findings"][0]
    assert first["rank"] == 1
    assert told(logs, capsys, "--json", "--top", "1").count('"by": [') == 1


def test_functions_that_ranks_compiled_unlike_each_other_are_told_with_who_waited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        story = Story("/home/ada/train.py", rank=rank, world=2, path=tmp_path / f"run.rank{rank}.log")
        where = {"stack": story.line(40, "loss = model(x)"), "code": story.line(10, "def forward(self, x):"),
                 "func": story.text("Net.forward")}  # fmt: skip
        backward = story.line(41, "loss.backward()")
        if rank == 1:
            guard = Guard("shape", "x", "f32[16]", "f32[32]", dim=0)
            story.emit(Recompile(t=story.now, compile="0/1", guards=[guard], versions=1, **where))
            story.emit(DynamoCompile(story.now, 3_100 * MS, "0/1", ops=4, **where))
        else:
            story.emit(Look(story.now + 100 * MS, 3_000 * MS, backward, "torch"))
        story.finish()
        assert story.log is not None
        story.log.close()
    page = " ".join(told(tmp_path, capsys).split())
    assert "Net.forward /home/ada/train.py:10" in page
    assert "rank 1: 1 graph, 3.10 s, compiled again once: shape of x: f32[16] -> f32[32]" in page
    waited = "rank 1 compiled it for 3.10 s; for 3.00 s of that rank 0 waited for it at loss.backward() (train.py:41)"
    assert waited in page
    (function,) = json.loads(told(tmp_path, capsys, "--json"))["functions"]
    assert [(row["rank"], row["graphs"], row["again"]) for row in function["ranks"]] == [(0, 0, 0), (1, 1, 1)]
    (wait,) = function["waits"]
    assert (wait["ranks"], wait["of"], wait["seconds"], wait["place"]["line"]) == ([0], 1, pytest.approx(3.0), 41)
    assert function["told"][-1] == waited


def test_what_is_asked_of_one_recording_is_refused_for_all(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--html", "out.html"], ["--since-step", "3"]):
        assert main(["report", str(logs), *option]) == 2
        assert f"{option[0]} is for one recording: name one of the logs in" in capsys.readouterr().err
    assert main(["report", str(logs), "--fail-on", "low"]) == 1


def test_a_folder_without_ranks_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "has no logs of ranks: record into it first" in capsys.readouterr().err
    save(clean().events, tmp_path / "run.log")
    assert main(["report", str(tmp_path)]) == 2
    assert f"has no logs of several ranks: name one of its logs, {tmp_path / 'run.log'}" in capsys.readouterr().err
