"""xlaprof report: from a log on disk to the page, through the command line."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from analysis.test_findings import ragged, reading
from analysis.test_run import training
from story import Story, clean

from xlaprof.cli import main
from xlaprof.events import Dropped


def write(story: Story, path: Path) -> str:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in story.events))
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return write(training(20), tmp_path / "run.log")


def test_the_page(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", log]) == 0
    out, err = capsys.readouterr()
    assert "xlaprof" in out
    assert "recompile" in out
    assert "loss.item()" in out
    assert err == ""


def test_json_is_that_of_the_same_report(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", log, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"]["path"] == log
    assert {finding["kind"] for finding in document["findings"]} == {
        finding.kind for finding in training(20).report().findings
    }


def test_top_shows_the_most_expensive_and_says_what_it_hides(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", log, "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "more not shown" in text
    assert main(["report", log, "--top", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["findings"]) == 1
    assert document["clean"] is False
    assert main(["report", log, "--top", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clean"] is False


def test_since_step(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", log, "--since-step", "10", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["steps"]["count"] == 10
    assert document["counters"]["CompileTime"] == 0


def test_since_a_step_that_is_not_there(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", log, "--since-step", "99"]) == 2
    assert "has no step 99 or later (the last one is 19)" in capsys.readouterr().err
    unnamed = Story()
    unnamed.barrier(unnamed.line(1), 5)
    assert main(["report", write(unnamed, tmp_path / "u.log"), "--since-step", "3"]) == 2
    assert "no named steps" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--top", "-1"], ["--since-step", "x"], ["--fail-on", "all"]])
def test_wrong_options_are_one_line(log: str, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", log, *option]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_fail_on_is_for_ci(tmp_path: Path) -> None:
    high, fine = write(ragged(), tmp_path / "high.log"), write(clean(), tmp_path / "fine.log")
    assert main(["report", high]) == 0
    assert main(["report", high, "--fail-on", "high"]) == 1
    assert main(["report", high, "--fail-on", "low", "--top", "0"]) == 1
    assert main(["report", fine, "--fail-on", "low"]) == 0


def test_a_recording_that_lacks_events_does_not_pass_fail_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = clean()
    story.emit(Dropped(t=story.now, count=7, why="disk"))
    lacks = write(story, tmp_path / "lacks.log")
    assert main(["report", lacks]) == 0
    capsys.readouterr()
    assert main(["report", lacks, "--fail-on", "low"]) == 2
    out, err = capsys.readouterr()
    assert "20 steps" in out  # the page all the same
    assert err.startswith(f"xlaprof: {lacks} lacks 7 events that the recording dropped, so it may hide a finding")
    assert main(["check", lacks, "--no-config", "--fail-on", "low", "--allow-dropped"]) == 0  # as it advises


@pytest.mark.parametrize("content", [b"", b"\x00\x01binary", b"{}\n", b'{"k":"header"', b"not json\n" * 50])
def test_what_is_no_log_is_one_line_and_2(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.log"
    path.write_bytes(content)
    assert main(["report", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("xlaprof: ")
    assert err.count("\n") == 1
    assert "bad.log" in err


def test_a_missing_file_and_a_directory_are_one_line_and_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "missing.log", tmp_path):
        assert main(["report", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_log_cut_anywhere_is_reported_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = Path(write(training(6), tmp_path / "run.log")).read_bytes()
    first_line = whole.index(b"\n") + 1
    cut = tmp_path / "cut.log"
    for size in range(first_line, len(whole), 97):
        cut.write_bytes(whole[:size])
        assert main(["report", str(cut)]) == 0
        assert main(["report", str(cut), "--json"]) == 0
    assert "torn" in capsys.readouterr().out


def test_it_imports_neither_torch_nor_jax_nor_textual(log: str) -> None:
    code = (
        "import sys; from xlaprof.cli import main; code = main(['report', sys.argv[1]]); "
        "slow = {'torch', 'jax', 'textual', 'numpy', 'pygments', 'rich.progress'} & set(sys.modules); "
        "assert not slow, slow; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, log], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_json_does_not_even_import_rich(log: str) -> None:
    code = "import sys; from xlaprof.cli import main; main(['report', *sys.argv[1:]]); assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, log, "--json"], capture_output=True, check=True)


def test_reads_are_found_in_what_a_recording_leaves_on_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", write(reading(), tmp_path / "run.log")]) == 0
    assert "Keep the loss on the device" in " ".join(capsys.readouterr().out.split())


def test_a_page_shows_ten_findings_and_says_how_to_see_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story()
    barrier = story.line(99, "xr.sync()")
    lines = [story.line(n, f"torch.linalg.eigvals(w{n})") for n in range(1, 13)]
    for _ in range(3):
        with story.step():
            for line in lines:
                story.fallback(line, "aten::linalg_eig", 3)
            story.barrier(barrier, 5)
    log = write(story, tmp_path / "run.log")
    count = len(story.report().findings)
    assert count >= 12
    assert main(["report", log]) == 0
    assert f"{count - 10} more not shown (--top {count} shows all)" in capsys.readouterr().out
    assert main(["report", log, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["findings"]) == count
    assert main(["report", log, "--top", str(count)]) == 0
    assert "not shown" not in capsys.readouterr().out
