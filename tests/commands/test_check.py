"""xlaprof check: limits from the command line and pyproject.toml, logs from disk, exit codes, JSON, annotations."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from analysis.test_findings import ragged, reading
from commands.test_report import write
from story import Story, clean

from xlaprof.cli import main
from xlaprof.events import Dropped

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where no pyproject.toml but the test's own is above."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path / "here"


@pytest.fixture
def bad(tmp_path: Path) -> str:
    story = ragged()
    story.finish()
    return write(story, tmp_path / "bad.log")


@pytest.fixture
def good(tmp_path: Path) -> str:
    story = clean()
    story.finish()
    return write(story, tmp_path / "good.log")


def test_a_broken_budget_is_1_with_the_line_and_what_to_change(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", bad, "--max-recompiles", "0"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "max_recompiles: 1 recompilation, 0 allowed"
    assert "train.py:34  x = x.to(device)" in out
    assert "Fix: Pad the last batch to 32" in out
    assert err == ""


def test_a_kept_budget_is_0_and_one_line(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--max-recompiles", "0", "--after-step", "2", "--max-transfers-per-step", "0", "--max-idle", "60%"]
    limits += ["--max-step-time", "20ms", "--no-fallback", "--no-findings", "--max-graph-breaks", "0"]
    assert main(["check", good, *limits]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert out.startswith(f"{good} keeps its budget: 0 recompilations, 0 allowed; ")
    assert err == ""


def test_every_limit_of_the_table_can_be_given(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"--max-step-time": "1s", "--max-compile-time": "1min", "--max-idle": "99%"}
    for name in ("recompiles", "compiles", "compile-time", "transfers-per-step", "graph-breaks", "idle", "step-time"):
        flag = f"--max-{name}"
        assert main(["check", good, flag, values.get(flag, "100")]) == 0, flag
    capsys.readouterr()


def test_several_logs_are_each_held_to_it(bad: str, good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", good, good, "--max-recompiles", "0"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert main(["check", good, bad, "--max-recompiles", "0"]) == 1
    out = capsys.readouterr().out
    assert f"{good} keeps its budget" in out
    assert "max_recompiles, broken by 1 of 2" in out
    assert f"  {bad}: 1 recompilation, 0 allowed" in out


def test_json(bad: str, good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", good, bad, "--max-recompiles", "0", "--no-fallback", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"], document["config"]) == (1, False, None)
    assert document["budget"] == {"max_recompiles": 0, "no_fallback": True}
    fine, broken = document["logs"]
    assert (fine["path"], fine["ok"], fine["steps"], fine["warnings"]) == (good, True, 20, [])
    assert [limit["ok"] for limit in broken["limits"]] == [False, True]
    limit = broken["limits"][0]
    assert (limit["name"], limit["limit"], limit["value"]) == ("max_recompiles", 0, 1)
    (finding,) = limit["findings"]
    assert (finding["file"], finding["line"], finding["kind"]) == ("train.py", 34, "recompile")


def test_fail_on_is_no_findings_from_a_severity_on(tmp_path: Path, bad: str) -> None:
    assert main(["check", bad, "--fail-on", "high"]) == 1
    assert main(["check", bad, "--no-findings", "--ignore", "recompile"]) == 0
    assert main(["check", bad, "--no-findings", "--ignore", "transfer"]) == 1


# -- pyproject.toml


def test_limits_come_from_the_nearest_pyproject_with_a_table(
    tmp_path: Path, elsewhere: Path, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.xlaprof]\nmax-recompiles = 0\nmax-idle = '99%'\n")
    (elsewhere / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert main(["check", bad, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["config"] == str(tmp_path / "pyproject.toml")
    assert document["budget"] == {"max_recompiles": 0, "max_idle": 0.99}
    assert main(["check", bad, "--max-recompiles", "1"]) == 0  # what is given here comes first
    assert main(["check", bad, "--no-config"]) == 2


def test_a_file_can_be_named(tmp_path: Path, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "budgets.toml"
    file.write_text("[tool.xlaprof]\nno_findings = 'high'\n")
    assert main(["check", bad, "--config", str(file)]) == 1
    file.write_text("[tool.other]\n")
    assert main(["check", bad, "--config", str(file)]) == 2
    assert "has no table [tool.xlaprof]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[tool.xlaprof]\nmax-recompile = 0\n", "unknown budget 'max-recompile': did you mean 'max_recompiles'?"),
        ("[tool.xlaprof]\nmax-idle = 'all'\n", "max_idle is 'all', but should be a share like 10% or 0.1"),
        ("[tool]\nxlaprof = 3\n", "should be a table of limits"),
        ("[tool.xlaprof\n", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_line_that_names_it(
    elsewhere: Path, bad: str, text: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "pyproject.toml").write_text(text)
    assert main(["check", bad]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "pyproject.toml" in err
    assert complaint in err


# -- mistakes


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "nothing to check: name a limit"),
        (["--after-step", "3"], "nothing to check: name a limit"),
        (["--max-idle", "200%"], "max_idle is '200%', but should be a share like 10% or 0.1"),
        (["--max-step-time", "50"], "max_step_time is '50', but should be a length like 50ms"),
        (["--max-memory", "1GB"], "holds no figures of memory, so max_memory cannot be checked"),
        (["--max-recompiles", "0", "--after-step", "99"], "has no step after 99 (the last one is 19)"),
        (["--fail-on", "all"], "invalid choice: 'all'"),
    ],
)
def test_wrong_usage_is_one_line_and_2(
    good: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", good, *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert complaint in err


def test_a_log_that_is_none_is_2_even_beside_a_good_one(
    tmp_path: Path, good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.log").write_text("hello\n")
    for path in (tmp_path / "text.log", tmp_path / "missing.log", tmp_path):
        assert main(["check", good, str(path), "--max-recompiles", "0"]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)


def test_a_recording_without_an_end_is_judged_and_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.log"
    cut.write_bytes(Path(write(clean(), tmp_path / "whole.log")).read_bytes()[:-9])
    assert main(["check", str(cut), "--max-recompiles", "0"]) == 0
    err = capsys.readouterr().err
    assert "no end of the recording: the program still runs, or was killed" in err
    assert "the last line is torn" in err


def test_a_recording_that_lacks_events_passes_only_where_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = clean()
    story.emit(Dropped(t=story.now, count=7, why="disk"))
    story.finish()
    log = write(story, tmp_path / "lacks.log")
    assert main(["check", log, "--max-recompiles", "0"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"xlaprof: {log} lacks 7 events that the recording dropped")
    assert main(["check", log, "--max-recompiles", "0", "--allow-dropped"]) == 0
    assert "7 events missing (disk)" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["{torn", '{"k":"step","name":1,"num":3,"t":-5,"dur":1}'])
def test_a_damaged_recording_passes_only_where_that_is_allowed(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stood in a line that cannot be read may have been what breaks the budget."""
    whole = Path(write(clean(), tmp_path / "whole.log")).read_text().splitlines()
    log = tmp_path / "damaged.log"
    log.write_text("\n".join([*whole[:5], line, *whole[5:]]) + "\n")
    assert main(["check", str(log), "--max-recompiles", "0"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{log} has 1 damaged line, so what it keeps may be broken" in err
    assert main(["check", str(log), "--max-recompiles", "0", "--allow-dropped"]) == 0


# -- GitHub


def test_annotations_name_the_file_from_the_repository_and_the_line(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story(file=str(elsewhere / "src" / "a,b.py"))
    barrier, eig = story.line(20, "xr.sync()"), story.line(18, "torch.linalg.eigvals(w)")
    for _ in range(5):
        with story.step():
            story.fallback(eig, "aten::linalg_eig", 3)
            story.barrier(barrier, 5)
    log = write(story, tmp_path / "run.log")
    assert main(["check", log, "--no-fallback", "--github"]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("::"))
    assert line.startswith(
        "::error file=src/a%2Cb.py,line=18,title=xlaprof%3A fallback::aten::linalg_eig has no lowering"
    )
    assert "%0AFix: " in line
    assert "Breaks no_fallback (5 operations" in line
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert main(["check", log, "--no-fallback", "--github", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["ok"] is False  # stays JSON
    assert "::error file=here/src/a%2Cb.py,line=18," in err


def test_a_kept_budget_is_not_annotated(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", good, "--no-fallback", "--github"]) == 0
    assert "::" not in capsys.readouterr().out


# -- real logs


def test_the_recordings_in_the_repository() -> None:
    limits = ["--max-recompiles", "0", "--after-step", "10", "--max-transfers-per-step", "0", "--no-fallback"]
    assert main(["check", str(SAMPLES / "decoder_fixed.log"), *limits, "--no-findings", "--max-idle", "10%"]) == 0
    for limit in (
        ["--max-recompiles", "0"],
        ["--max-transfers-per-step", "0"],
        ["--no-fallback"],
        ["--max-idle", "10%"],
    ):
        assert main(["check", str(SAMPLES / "decoder.log"), "--after-step", "2", *limit]) == 1


def test_it_imports_neither_torch_nor_jax_nor_rich(bad: str) -> None:
    code = (
        "import sys; from xlaprof.cli import main; code = main(['check', *sys.argv[1:]]); "
        "slow = {'torch', 'jax', 'textual', 'numpy', 'rich'} & set(sys.modules); assert not slow, slow; sys.exit(code)"
    )
    command = [sys.executable, "-c", code, bad, "--max-recompiles", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


def test_reads_are_judged_from_disk(tmp_path: Path) -> None:
    assert main(["check", write(reading(), tmp_path / "run.log"), "--max-transfers-per-step", "0.5"]) == 1
