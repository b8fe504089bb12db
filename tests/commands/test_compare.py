"""xlaprof compare: two logs from disk, exit codes, JSON, refusals."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from analysis.test_compare import changed, steps
from analysis.test_findings import ragged
from commands.test_report import write
from story import Story, clean

from xlaprof.cli import main

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    fine, bad = clean(), ragged()
    fine.finish()
    bad.finish()
    return write(fine, tmp_path / "fine.log"), write(bad, tmp_path / "bad.log")


def test_a_new_finding_is_1_and_shown_with_its_fix(logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    fine, bad = logs
    assert main(["compare", fine, bad]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert "New: 1 finding" in out
    assert "+ recompile  train.py:34" in out
    assert "Fix: Pad the last batch to 32" in out
    assert re.search(r"^Worse: 1 new finding", out, re.MULTILINE)


def test_one_gone_is_0(logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    fine, bad = logs
    assert main(["compare", bad, fine]) == 0
    out = capsys.readouterr().out
    assert "Gone: 1 finding" in out
    assert "Better: 1 finding gone" in out


def test_the_same_is_0_and_says_so(logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for log in logs:
        assert main(["compare", log, log]) == 0
        out = capsys.readouterr().out
        assert "no significant difference (+0.0% to +0.0% with 95% confidence)" in out
        assert out.endswith("No significant difference.\n")


def test_slower_steps_are_1_beyond_the_tolerance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write(steps(20), tmp_path / "a.log"), write(steps(24, seed=1), tmp_path / "b.log")
    assert main(["compare", before, after]) == 1
    sentence = r"train steps: \d+\.\d% slower \(\+\d+\.\d% to \+\d+\.\d% with 95% confidence\)"
    assert re.search(sentence, capsys.readouterr().out)
    assert main(["compare", before, after, "--tolerance", "50%"]) == 0
    assert main(["compare", after, before]) == 0


def test_json(logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    fine, bad = logs
    assert main(["compare", fine, bad, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["confidence"], document["notes"]) == (1, 0.95, [])
    assert (document["before"]["path"], document["after"]["path"]) == (fine, bad)
    assert document["worse"][0] == "1 new finding"
    (new,) = document["new"]
    assert (new["kind"], new["file"], new["line"]) == ("recompile", "train.py", 34)
    (train,) = document["steps"]
    assert set(train) == {
        "name", "before_s", "after_s", "before_count", "after_count", "by", "low", "high", "verdict"
    }  # fmt: skip
    assert {figure["name"] for figure in document["figures"]} >= {"compile time", "transfers per step", "device idle"}


def test_what_cannot_be_compared_is_one_line_and_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(clean(), tmp_path / "one.log")
    other = write(changed(clean(), world=4, argv=["serve.py"]), tmp_path / "other.log")
    assert main(["compare", one, other]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "one ran as 1, the other as 4 processes; they are of different programs, train.py and serve.py" in err
    assert "--anyway" in err
    assert main(["compare", one, other, "--anyway"]) == 0
    assert "! one ran as 1, the other as 4 processes" in capsys.readouterr().out


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_the_page_fits_whatever_the_log_holds(
    tmp_path: Path, width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    story = Story(file='we"ird\u2028\n[red].py')
    barrier, eig = story.line(2, "\x1b[31mx = '\\'"), story.line(3, "[bold]y[/bold]")
    for _ in range(10):
        with story.step("[link=x]\x07"):
            story.fallback(eig, "aten::[/]", 3)
            story.barrier(barrier, 5, compile=1)
    one, two = write(story, tmp_path / "one.log"), write(clean(), tmp_path / "two.log")
    assert main(["compare", two, one, "--anyway"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert all(len(line) <= 100 and line == line.rstrip() for line in out.splitlines())


def test_logs_that_are_none(tmp_path: Path, logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.log").write_text("hello\n")
    for path in (tmp_path / "text.log", tmp_path / "missing.log", tmp_path):
        assert main(["compare", logs[0], str(path)]) == 2
        assert main(["compare", str(path), logs[0]]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 2)
    empty = Story()
    assert main(["compare", write(empty, tmp_path / "empty.log"), logs[0], "--anyway"]) == 0


def test_tolerances_that_are_none(logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("lots", "-1", "300%", "nan"):
        assert main(["compare", *logs, f"--tolerance={text}"]) == 2
        assert "is not a share like 5% or 0.05" in capsys.readouterr().err


def test_the_recordings_in_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = str(SAMPLES / "decoder.log"), str(SAMPLES / "decoder_fixed.log")
    assert main(["compare", before, after]) == 0
    assert "faster" in capsys.readouterr().out
    assert main(["compare", after, before]) == 1


def test_it_imports_neither_torch_nor_jax(logs: tuple[str, str]) -> None:
    code = (
        "import sys; from xlaprof.cli import main; code = main(['compare', *sys.argv[1:]]); "
        "slow = {'torch', 'jax', 'textual', 'numpy'} & set(sys.modules); assert not slow, slow; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *logs], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    code = code.replace("'numpy'", "'numpy', 'rich'")
    done = subprocess.run([sys.executable, "-c", code, *logs, "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
