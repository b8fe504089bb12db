"""xlaprof show: what compilers made of real programs, with planted lines found again; and folders that lie."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import processes
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recording import Recorded
from story import Story, clean, save

import xlaprof
import xlaprof.runtime as xr
from xlaprof.cli import main
from xlaprof.compiled.lines import with_lines
from xlaprof.events import Code, Dropped
from xlaprof.recording import code_folder
from xlaprof.recording.code_folder import CodeFolder, NewCode, folder_of, is_plain

HERE = Path(__file__)
Show = Callable[..., str]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    def show(log: Path, *args: str) -> str:
        capsys.readouterr()
        assert main(["show", str(log), *args]) == 0
        return capsys.readouterr().out

    return show


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Show:
    def refused(log: Path, *args: str) -> str:
        capsys.readouterr()
        assert main(["show", str(log), *args]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        return said.err

    return refused


def planted(mark: str) -> str:
    """The line of this file that ends in a mark, as a comment names it."""
    [line] = [
        number for number, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith(f"  # <-- {mark}")
    ]
    return f"{HERE.name}:{line}"


def lines_with(text: str, part: str) -> list[str]:
    found = [line for line in text.splitlines() if part in line]
    assert found, text
    return found


# -- the embedded runtime ----------------------------------------------------------------------------------------


def step(rows: int) -> None:
    weight = torch.full((8, 8), 0.5, device=xr.device())
    product = torch.ones(rows, 8, device=xr.device()) @ weight  # <-- product
    wave = torch.sin(product)  # <-- wave
    total = wave.sum()
    xr.sync()
    assert total.isfinite()


def test_each_form_of_a_graph_names_the_lines_of_its_operations(tmp_path: Path, show: Show) -> None:
    log = tmp_path / "run.log"
    xr.sync()
    with xlaprof.record(log, code=True):
        step(5)
        step(7)
    programs = [one for one in json.loads(show(log, "--json"))["programs"] if len(one["texts"]) > 1]
    first, second = (one["program"] for one in programs if one["place"]["code"] == "xr.sync()")
    assert {one["source"] for one in programs} == {"xla"}
    assert all(one["seconds"] > 0 for one in programs)
    hlo = show(log, first)
    assert hlo == show(log, f"xla:{first}", "--form", "HLO")
    assert all(line.endswith(f"  // {planted('product')}") for line in lines_with(hlo, " dot("))
    assert all(line.endswith(f"  // {planted('wave')}") for line in lines_with(hlo, " sine("))
    assert "FileNames" not in hlo
    ir = show(log, first, "--form", "ir")
    assert f"{planted('wave')}, ROOT=" in lines_with(ir, "aten::sin")[0]
    difference = show(log, first, "--diff", second)
    assert difference.startswith(f"--- xla:{first} hlo\n+++ xla:{second} hlo\n")
    assert re.search(r"^-.*f32\[5,8\].*\n", difference, re.MULTILINE)
    assert re.search(r"^\+.*f32\[7,8\].*\n", difference, re.MULTILINE)
    assert show(log, first, "--diff", first) == ""
    listed = show(log)
    assert f"xla:{first}" in listed
    assert "hlo" in listed


PROGRAM = """
import torch
import xlaprof.runtime as xr

x = torch.arange(6.0, device=xr.device())
y = torch.tanh(x)  # line 6
xr.sync()
print(y.tolist())
"""


def test_a_program_prints_the_same_and_one_from_disk_has_no_stablehlo(tmp_path: Path, show: Show) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    env = {**os.environ, "XLAPROF_CACHE_DIR": str(tmp_path / "kept")}

    def python(*args: str) -> tuple[str, str]:
        done = processes.run(*args, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    plain = python("train.py")
    (tmp_path / "kept").rename(tmp_path / "kept-then")
    assert python("-m", "xlaprof", "run", "--code", "--no-report", "train.py") == plain
    log = tmp_path / "run.log"
    [made] = json.loads(show(log, "--json"))["programs"]
    assert [one["form"] for one in made["texts"]] == ["ir", "stablehlo", "hlo"]
    stablehlo = show(log, made["program"], "--form", "stablehlo")
    assert lines_with(stablehlo, "stablehlo.tanh")[0].endswith("  // train.py:6")
    assert "loc(" not in stablehlo
    folder = tmp_path / "run.code"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert python("-m", "xlaprof", "run", "--code", "--no-report", "-o", "again.log", "train.py") == plain
    [found] = json.loads(show(tmp_path / "again.log", "--json"))["programs"]
    assert [one["form"] for one in found["texts"]] == ["ir", "hlo"]
    assert "// train.py:6" in show(tmp_path / "again.log", found["program"])
    assert python("-m", "xlaprof", "run", "--no-report", "-o", "without.log", "train.py") == plain
    assert not (tmp_path / "without.code").exists()


# -- JAX ---------------------------------------------------------------------------------------------------------


def test_the_jaxpr_and_the_hlo_of_a_call_are_one_program(tmp_path: Path, show: Show) -> None:
    @jax.jit
    def waves(x: Any) -> Any:
        return jnp.tanh(x) + jnp.cos(x)  # <-- waves

    log = tmp_path / "run.log"
    with xlaprof.record(log, code=True):
        waves(jnp.ones(3))
        waves(jnp.ones(4))
        waves(jnp.ones(3))
        ahead = jax.jit(lambda x: jnp.sinh(x)).lower(jnp.ones(5)).compile()
        ahead(jnp.ones(5))
    programs = json.loads(show(log, "--json"))["programs"]
    assert [one["function"] for one in programs] == ["waves", "waves", "<lambda>"]
    assert [[text["form"] for text in one["texts"]] for one in programs] == [["jaxpr", "hlo"]] * 3
    assert all(one["seconds"] > 0 for one in programs)
    for one, size in zip(programs, (3, 4, 5), strict=True):
        hlo, jaxpr = show(log, one["program"]), show(log, one["program"], "--form", "jaxpr")
        assert f"f32[{size}]" in hlo
        assert f":f32[{size}]" in jaxpr
    hlo, jaxpr = (show(log, programs[0]["program"], "--form", form) for form in ("hlo", "jaxpr"))
    assert all(line.endswith(f"  // {planted('waves')}") for line in lines_with(hlo, " cosine("))
    assert f"{planted('waves')}:" in lines_with(jaxpr, "= tanh")[0]


# -- torch.compile -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # PyTorch's own, where Inductor is loaded
@pytest.mark.slow
def test_generated_code_names_lines_by_the_graph_that_dynamo_captured(tmp_path: Path, show: Show) -> None:
    def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        product = x @ weight  # <-- compiled product
        return torch.sin(product).sum()

    torch._dynamo.reset()
    log = tmp_path / "run.log"
    with xlaprof.record(log, code=True):
        torch.compile(model)(torch.ones(4, 3), torch.ones(3, 4, requires_grad=True)).backward()
    [program] = json.loads(show(log, "--json"))["programs"]
    assert (program["source"], program["program"], program["function"]) == ("torch.compile", "0/0", "model")
    forms = [one["form"] for one in program["texts"]]
    assert {"fx", "aot joint", "aot forward", "aot backward"} <= {*forms}
    assert forms.count("generated") == forms.count("post grad") == 2  # forward and backward
    generated = show(log, "0/0").splitlines()
    named = [generated[at + 1] for at, line in enumerate(generated) if "Source Nodes: [product]" in line]
    assert [line.strip() for line in named] == [f"# {planted('compiled product')}"]
    line = planted("compiled product").rpartition(":")[2]
    for form in ("fx", "aot forward"):
        assert f"{HERE.name}:{line} in " in show(log, "0/0", "--form", form)


def test_programs_before_and_after_a_reset_are_two(tmp_path: Path, show: Show) -> None:
    torch._dynamo.reset()
    log = tmp_path / "run.log"
    with xlaprof.record(log, code=True):
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
        torch._dynamo.reset()
        torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))
    assert [one["program"] for one in json.loads(show(log, "--json"))["programs"]] == ["0/0", "0/0#2"]
    assert ".sin()" in show(log, "0/0")
    assert ".cos()" in show(log, "0/0#2")


# -- what is asked for -------------------------------------------------------------------------------------------


def recorded(tmp_path: Path, texts: dict[tuple[str, str, str], str]) -> Path:
    """A recording with these texts, by source, key and form."""
    log = tmp_path / "run.log"
    with xlaprof.record(log, code=True):
        rec = xlaprof.recording.recorder.active
        for (source, key, form), text in texts.items():
            rec.keep_code(source, key, form, lambda text=text: text)
    return log


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, show: Show, refused: Show) -> None:
    log = recorded(tmp_path, {("xla", "3", "hlo"): "a", ("jax", "3", "hlo"): "b", ("torch.compile", "0/0", "fx"): "c"})
    assert show(log, "jax:3") == "b\n"
    assert show(log, "0/0") == "c\n"
    assert "name one of xla:3 and jax:3" in refused(log, "3")
    assert "There are xla:3, jax:3 and torch.compile:0/0" in refused(log, "7")
    assert "it has hlo" in refused(log, "xla:3", "--form", "ir")
    assert "it has fx" in refused(log, "xla:3", "--diff", "0/0")
    assert "name one before --form" in refused(log, "--form", "hlo")
    without = save(clean().events, tmp_path / "without.log")
    assert f"xlaprof run --code -o {without}" in refused(without)
    nothing = save(Story().events, tmp_path / "nothing.log")
    assert "nothing was compiled" in refused(nothing)


def test_a_diff_that_would_take_minutes_is_refused(tmp_path: Path, refused: Show) -> None:
    long = "\n".join(map(str, range(30_000)))
    log = recorded(tmp_path, {("jax", "1", "hlo"): long, ("jax", "2", "hlo"): f"{long}\nmore"})
    assert "too many to be compared" in refused(log, "1", "--diff", "2")


# -- what is kept ------------------------------------------------------------------------------------------------


def new(text: str, source: str = "xla", key: str = "1", form: str = "hlo") -> NewCode:
    return NewCode(Code(1, source, key, form, ""), text)


@given(st.text(), st.text(), st.text(), st.text())
def test_every_name_is_plain_and_what_it_holds_is_the_text(
    tmp_path_factory: pytest.TempPathFactory, source: str, key: str, form: str, text: str
) -> None:
    folder = CodeFolder(str(tmp_path_factory.getbasetemp() / "any.log"))
    kept = folder.keep(new(text, source, key, form))
    assert kept is not None
    assert is_plain(kept.file)
    [there] = Path(folder.path).iterdir()
    assert (there.name, there.stat().st_size) == (kept.file, kept.bytes)
    assert there.read_bytes() == text.encode()


def test_a_text_that_is_too_long_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_folder, "LARGEST", 200)
    kept = CodeFolder(str(tmp_path / "run.log")).keep(new("ä" * 1_000))
    assert kept is not None
    text = (tmp_path / "run.code" / kept.file).read_text()
    assert kept.bytes <= 200
    assert text.startswith("ää")
    assert text.endswith("... cut here: the text has 1,000 characters\n")


def test_a_recording_keeps_no_more_than_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(code_folder, "MOST", 2)
    log = recorded(tmp_path, {("jax", str(number), "hlo"): "text" for number in range(5)})
    assert len(list((tmp_path / "run.code").iterdir())) == 2
    assert [(one.count, one.why) for one in Recorded(log).of(Dropped)] == [(3, "code")]
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["show", str(log)]) == 0
    assert "! 3 texts not kept: a recording keeps 2 texts" in capsys.readouterr().out
    assert xlaprof.report(log).run.lacks == 0


def test_a_new_recording_removes_the_texts_of_the_one_it_replaces_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "run.code"
    folder.mkdir(0o755)
    (folder / "00001.jax.1.hlo.txt").write_text("earlier")
    (folder / "notes.txt").write_text("the user's")
    recorded(tmp_path, {("xla", "1", "ir"): "now"})
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        "00001.xla.1.ir.txt": "now",
        "notes.txt": "the user's",
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_texts_go_with_the_log_that_a_second_recording_of_the_process_keeps(tmp_path: Path, show: Show) -> None:
    recorded(tmp_path, {("xla", "1", "ir"): "first"})
    log = recorded(tmp_path, {("xla", "1", "ir"): "second"})
    assert show(tmp_path / "run.1.log", "1") == "first\n"
    assert show(log, "1") == "second\n"


@pytest.mark.parametrize("there", ["a file", "a link"])
def test_a_folder_that_cannot_be_written_is_told_once_and_the_program_goes_on(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Show
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if there == "a file":
        (tmp_path / "run.code").write_text("mine")
    else:
        (tmp_path / "run.code").symlink_to(elsewhere)
    log = recorded(tmp_path, {("xla", "1", "ir"): "one", ("xla", "2", "ir"): "two"})
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"cannot keep the texts of programs in {tmp_path / 'run.code'}" in said
    found = Recorded(log)
    assert (found.of(Code), sum(one.count for one in found.of(Dropped))) == ([], 2)
    assert list(elsewhere.iterdir()) == []
    assert there == "a link" or (tmp_path / "run.code").read_text() == "mine"
    assert "none could be kept" in refused(log)


def test_a_folder_that_goes_while_it_is_recorded_costs_the_texts_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with xlaprof.record(tmp_path / "run.log", code=True):
        (tmp_path / "run.code").rmdir()
        xlaprof.recording.recorder.active.keep_code("xla", "1", "ir", lambda: "text")
    assert "No such file or directory" in capsys.readouterr().err


def test_what_a_text_raises_never_reaches_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RuntimeError("no text")

    with xlaprof.record(tmp_path / "run.log", code=True):
        xlaprof.recording.recorder.active.keep_code("xla", "1", "hlo", broken)
    assert "hlo of xla 1: RuntimeError: no text" in capsys.readouterr().err
    assert [one.count for one in Recorded(tmp_path / "run.log").of(Dropped)] == [1]


def test_who_joins_a_recording_without_texts_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with xlaprof.record(tmp_path / "run.log", joinable=True), xlaprof.record(tmp_path / "run.log", code=True):
        pass
    assert "xlaprof run --code" in capsys.readouterr().err
    assert not (tmp_path / "run.code").exists()


# -- logs and folders that lie -----------------------------------------------------------------------------------


def lying(tmp_path: Path, file: str) -> Path:
    story = Story()
    story.emit(Code(1, "xla", "1", "hlo", file, 5))
    (tmp_path / "run.code").mkdir(exist_ok=True)
    (tmp_path / "secret").write_text("secret")
    return save(story.events, tmp_path / "run.log")


@pytest.mark.parametrize(
    "file", ["../secret", "/etc/passwd", "..", ".", "", "a/b", "a\0b", ".hidden", "a\\b", "x" * 300]
)
def test_a_name_that_is_not_plain_is_not_opened(file: str, tmp_path: Path, refused: Show) -> None:
    assert "no plain name" in refused(lying(tmp_path, file), "1")


def test_only_a_regular_file_of_bounded_size_is_read(
    tmp_path: Path, refused: Show, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, file = lying(tmp_path, "text"), tmp_path / "run.code" / "text"
    assert "does not exist" in refused(log, "1")
    file.symlink_to(tmp_path / "secret")
    assert "is a link" in refused(log, "1")
    file.unlink()
    os.mkfifo(file)
    began = time.monotonic()
    assert "no regular file" in refused(log, "1")
    assert time.monotonic() - began < 60  # it did not wait for a writer
    file.unlink()
    file.mkdir()
    assert "no regular file" in refused(log, "1")
    file.rmdir()
    with file.open("wb") as sparse:
        sparse.truncate(code_folder.LARGEST + 1)
    assert "more than a recording writes" in refused(log, "1")
    file.write_bytes(b"\xff\xfe torn \x1b[2J::error::\n::error::x")
    assert show(log, "1").splitlines()[-1] == ": :error::x"
    (tmp_path / "run.code").rename(tmp_path / "moved")
    (tmp_path / "run.code").symlink_to(tmp_path / "moved")
    assert "is no folder" in refused(log, "1")


@given(
    st.text(alphabet=st.sampled_from('#loc(")/: =%{}\n1aFileNames"ROOT metadata_op,[]')),
    st.sampled_from(["xla", "jax"]),
)
def test_no_text_breaks_the_search_for_lines(text: str, source: str) -> None:
    for form in ("hlo", "stablehlo", "generated", "fx"):
        assert isinstance(with_lines(form, source, text, text), str)


def test_the_folder_is_named_after_the_log() -> None:
    assert [folder_of(log) for log in ("a/run.log", "run.log.gz", "mine")] == ["a/run.code", "run.code", "mine.code"]
