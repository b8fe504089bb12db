"""xlaprof explain: one finding in depth, from a log on disk; a kind, from its page."""

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from analysis.test_findings import ragged, reading
from commands.test_report import write
from msgspec.structs import replace
from story import Story, clean

from xlaprof.analysis.model import Buckets, Finding, Place
from xlaprof.analysis.run import Run
from xlaprof.cli import main
from xlaprof.commands.explain import pages

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture
def log(tmp_path: Path) -> str:
    return write(reading(), tmp_path / "run.log")


def found(story: Story) -> Finding:
    return story.report().findings[0]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(out.split())


def test_everything_that_is_known_of_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, finding = write(ragged(), tmp_path / "run.log"), found(ragged())
    assert main(["explain", finding.id, log]) == 0
    page = printed(capsys)
    for part in (
        f"recompile high aten::embedding {finding.id}",
        "train.py:34 in train",
        "> 34 | x = x.to(device)",
        f"Cause: {finding.cause}",
        f"Fix: {finding.advice}",
        "Costs: 500 ms",
        "Gain if fixed: ",
        "Confidence: high (measured, or read from the recording).",
        "Changed: shape, from i64[32,16] to i64[8,16].",
        "Evidence",
        "When once in",
        "step 6 500 ms i64[32,16] -> i64[8,16]",
        "xlaprof explain recompile",
    ):
        assert part in page, part


def test_the_code_is_shown_as_it_was_recorded_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.py"
    story = Story(file=str(file))
    barrier, eig = story.line(5, "xr.sync()"), story.line(3, "torch.linalg.eigvals(w)")
    for _ in range(5):
        with story.step():
            story.fallback(eig, "aten::linalg_eig", 3)
            story.barrier(barrier, 5)
    log = write(story, tmp_path / "run.log")
    file.write_text("import torch\nw = 0\n  torch.linalg.eigvals(w)\nx = 1\nxr.sync()\n")
    assert main(["explain", "fallback", log]) == 0
    page = printed(capsys)
    assert "1 | import torch 2 | w = 0 > 3 | torch.linalg.eigvals(w) 4 | x = 1 5 | xr.sync()" in page
    file.write_text("secret = 1\n" * 9)
    assert main(["explain", "fallback", log]) == 0
    page = printed(capsys)
    assert "secret" not in page
    assert "has changed since the recording" in page
    assert "> 3 | torch.linalg.eigvals(w)" in page
    file.unlink()
    assert main(["explain", "fallback", log]) == 0
    assert "cannot be read here" in printed(capsys)


def test_the_beginning_of_an_id_is_enough_where_it_is_the_only_one(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = found(reading())
    assert main(["explain", finding.id[:3].upper(), log]) == 0
    assert finding.id in printed(capsys)


def eigenvalues() -> Story:
    """Twenty findings, one on each line."""
    story = Story()
    barrier = story.line(99, "xr.sync()")
    lines = [story.line(n, f"torch.linalg.eigvals(w{n})") for n in range(1, 21)]
    for _ in range(3):
        with story.step():
            for line in lines:
                story.fallback(line, "aten::linalg_eig", 3)
            story.barrier(barrier, 5)
    return story


def test_the_command_under_a_finding_explains_that_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(eigenvalues(), tmp_path / "a run.log")
    ids = [finding.id for finding in Run(1).feed_all(eigenvalues().events).report().findings]
    assert any(id.startswith(str(number)) for number in range(1, 21) for id in [*ids[: number - 1], *ids[number:]])
    assert main(["report", "--top", "20", "--since-step", "1", log]) == 0
    page = printed(capsys)
    commands = re.findall(r"More: (xlaprof explain '.+?' \d+ --since-step 1)", page)
    assert len(commands) == len(ids)
    for command, id in zip(commands, ids, strict=True):
        assert main(shlex.split(command)[1:]) == 0
        assert f"aten::linalg_eig {id} " in printed(capsys)


def test_a_log_and_a_finding_are_known_in_either_order(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([log, "1"], ["1", log], [log, "transfer"], ["transfer", log]):
        assert main(["explain", *words]) == 0
        assert found(reading()).id in printed(capsys)
    for words, complaint in (
        ([log], f"which finding of {log}? Name its number in the report: xlaprof explain {log} 1"),
        ([log, "99"], f"no finding '99' in {log}; there are: 1: {found(reading()).id}"),
        ([log, "1", "2"], "explain takes a recording and a finding, not"),
        (["missing.log", "1"], "missing.log does not exist"),
    ):
        assert main(["explain", *words]) == 2
        assert complaint in capsys.readouterr().err


def test_an_id_that_is_none_names_those_there_are(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nothing", log]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    for finding in reading().report().findings:
        assert f"{finding.id} ({finding.kind} train.py:{finding.place.line})" in err


def test_a_beginning_of_several_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = eigenvalues()
    ids = [finding.id for finding in story.report().findings]
    first = next(a[0] for a in ids if a[0].isalpha() and sum(b[0] == a[0] for b in ids) > 1)
    assert main(["explain", first, write(story, tmp_path / "run.log")]) == 2
    assert f"'{first}' is the beginning of {sum(id[0] == first for id in ids)} ids" in capsys.readouterr().err


def test_a_log_without_findings_has_nothing_to_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "38", write(clean(), tmp_path / "run.log")]) == 2
    assert "no findings" in capsys.readouterr().err


def test_json_has_the_finding_its_code_and_its_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "recompile", write(ragged(), tmp_path / "run.log"), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["schema"] == 1
    (finding,) = explained["findings"]
    assert (finding["id"], finding["line"], finding["change"]["to"]) == (found(ragged()).id, 34, "i64[8,16]")
    assert finding["source"] == {
        "state": "gone",
        "now": None,
        "lines": [{"line": 34, "code": "x = x.to(device)", "marked": True}],
    }
    assert finding["occurrences"]["total"] == 1
    assert finding["occurrences"]["first"][0]["step"] == 6


def test_remedy_values_sizes_and_other_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What other kinds bring along is drawn from the finding, whoever made it."""
    from rich.console import Console

    from xlaprof.analysis.occurrences import occurrences
    from xlaprof.pages.explain import render
    from xlaprof.pages.page import show_page
    from xlaprof.pages.source import source

    story = ragged()
    finding = replace(
        found(story),
        confidence="medium",
        rhythm="every 7 steps",
        remedy="x = pad(x, 8)\n\ty = \x1b[31mx",
        values=(("f32[8,4]", 30), ("f32[5,4]", 3), *((f"f32[{n}]", 1) for n in range(20))),
        buckets=(Buckets((64,), 1, 0.4, 0.3, 0.7), Buckets((32, 64), 2, 0.2, 0.1, 0.6)),
        also=(Place("train.py", 39, "train", "xr.sync()"), Place()),
    )
    happened = occurrences([story.events], story.run(), finding)  # type: ignore[arg-type]
    sources = source(finding.place), tuple(map(source, finding.also))
    for width in (50, 80, 200):
        with (tmp_path / "page").open("w", encoding="utf-8") as file:
            console = Console(file=file, width=width, color_system=None, highlight=False, markup=False)
            show_page(partial(render, finding, story.report(), happened, sources), console)
        text = (tmp_path / "page").read_text("utf-8")
        assert all(len(line) <= min(width, 100) for line in text.splitlines())
        assert "\x1b" not in text
        page = " ".join(text.split())
        for part in (
            "Confidence: medium (the most probable",
            "Happened: once, every 7 steps.",
            "x = pad(x, 8)",
            "f32[8,4]",
            "30x",
            "and 10 more",
            "2 32, 64 2 200 ms 10% 600 ms" if width > 50 else "2 32, 64 2 200 ms 600 ms",
            "train.py:39 in train",
            "> 39 | xr.sync()",
            "no line is known",
        ):
            assert part in page, part


# -- kinds


@pytest.mark.parametrize("kind", sorted(pages()))
def test_a_kind_alone_is_its_page(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", kind]) == 0
    page = capsys.readouterr().out
    assert page == pages()[kind].read_text("utf-8")
    assert main(["explain", kind, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "kind": kind, "page": page}


def test_a_kind_with_dashes_is_understood_and_one_that_is_none_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "graph-break"]) == 0
    capsys.readouterr()
    assert main(["explain", "recompiles"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "did you mean 'recompile'?" in err
    assert "name the log too: xlaprof explain run.log recompiles" in err


def test_wrong_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.log").write_text("hello\n")
    for path in (tmp_path / "text.log", tmp_path / "missing.log", tmp_path):
        assert main(["explain", "38", str(path)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)


def test_the_recordings_in_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("recompile", "transfer", "fallback", "idle_gap"):
        assert main(["explain", kind, str(SAMPLES / "decoder.log")]) == 0
        assert "When " in printed(capsys)


def test_it_imports_neither_torch_nor_jax(log: str) -> None:
    code = (
        "import sys; from xlaprof.cli import main; code = main(['explain', *sys.argv[1:]]); "
        "slow = {'torch', 'jax', 'textual', 'numpy'} & set(sys.modules); assert not slow, slow; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, "transfer", log], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
