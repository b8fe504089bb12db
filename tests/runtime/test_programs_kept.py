"""The second start of a program compiles nothing: what the first one compiled is found by its graph."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
import pytest
import torch

import xlaprof.runtime as xr
from xlaprof import events, log
from xlaprof.runtime.execution.kept import folder as folders
from xlaprof.runtime.execution.kept import persistent
from xlaprof.runtime.tape import tapes

TRAINING = """
import sys, torch, xlaprof, xlaprof.runtime as xr
with xlaprof.record(sys.argv[1]):
    xr.manual_seed(1)
    torch.manual_seed(1)
    layers = torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.3), torch.nn.Linear(5, 2)
    model = torch.nn.Sequential(*layers).to("xla")
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        loss = model(torch.randn(8, 6).to("xla")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        xr.sync()
    print(loss.item(), [round(p.sum().item(), 5) for p in model.parameters()])
"""

FUNCTION_OVER_JAX = """
import sys, jax, torch, xlaprof, xlaprof.torch_xla
import torch_xla.core.xla_builder as xb
with xlaprof.record(sys.argv[1]):
    print(xb.call_jax(lambda x: x + int(sys.argv[2]), (torch.ones(2, device="xla"),)).tolist())
"""

LARGE_SUM = """
import sys, torch, xlaprof, xlaprof.runtime as xr
with xlaprof.record(sys.argv[1]):
    x = torch.ones(1000, 50).to("xla")
    xr.sync()
    y = (x @ x.T).exp() @ x
    xr.sync()
"""

EAGER = """
import sys, torch, xlaprof, xlaprof.runtime as xr
with xlaprof.record(sys.argv[1]), xr.eager_mode_context(True):
    print((torch.ones(3, device="xla") * 2.5).tolist())
"""


Start = Callable[..., subprocess.CompletedProcess[str]]


def anew(*args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A process that has nothing of another's: hashes of strings neither, by which no program may be found."""
    return subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True, timeout=300, check=False)


class Runs:
    """Runs of programs, in processes of their own, that share the folder ``cache``."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp, self.cache, self.number = tmp_path, tmp_path / "cache", 0

    def __call__(
        self, program: str, *arguments: str, start: Start = processes.run, **environment: str
    ) -> tuple[list[events.Compile], str, str]:
        """What was compiled, and what the program and xlaprof said."""
        self.number += 1
        recorded = self.tmp / f"{self.number}.log"
        named = {**os.environ, "XLAPROF_CACHE_DIR": str(self.cache), **environment}
        done = start("-c", program, str(recorded), *arguments, env=named)
        assert done.returncode == 0, done.stderr
        compiles = [event for event in log.read(recorded) if isinstance(event, events.Compile)]
        assert compiles
        return compiles, done.stdout, done.stderr

    def files(self) -> list[Path]:
        return sorted(self.cache.iterdir())


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[events.Compile], str]:
    """The folder after a first run of the training, what that compiled, and what it printed."""
    runs = Runs(tmp_path_factory.mktemp("first"))
    compiles, printed, said = runs(TRAINING, start=anew)
    assert not said
    return runs.cache, compiles, printed


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture
def after_a_run(runs: Runs, before: tuple[Path, list[events.Compile], str]) -> Runs:
    shutil.copytree(before[0], runs.cache)
    return runs


def test_the_second_start_compiles_nothing_and_computes_the_same(
    after_a_run: Runs, before: tuple[Path, list[events.Compile], str]
) -> None:
    _, first, printed = before
    second, printed_again, said = after_a_run(TRAINING, start=anew)
    assert printed == printed_again
    assert not said
    assert not any(one.cached for one in first)
    assert all(one.kept and not one.unkept for one in first)
    assert [one.graph for one in second] == [one.graph for one in first]
    assert all(one.cached and one.lower == 0 for one in second)
    assert all(one.spared > 0 for one in second)


def test_a_changed_program_compiles_what_changed(
    after_a_run: Runs, before: tuple[Path, list[events.Compile], str]
) -> None:
    second, _, _ = after_a_run(TRAINING.replace("randn(8, 6)", "randn(9, 6)"))
    known = {one.graph for one in before[1]}
    assert {one.graph for one in second if one.cached} == {one.graph for one in second} & known
    assert not all(one.cached for one in second)


def test_other_flags_are_other_programs(after_a_run: Runs) -> None:
    second, _, _ = after_a_run(TRAINING, XLA_FLAGS="--xla_cpu_enable_fast_math=true")
    assert not any(one.cached for one in second)


def test_what_a_program_needs_is_told_of_the_compiled_and_of_the_loaded_one(runs: Runs) -> None:
    (compiled,), _, _ = runs(LARGE_SUM)
    (loaded,), _, _ = runs(LARGE_SUM)
    assert (compiled.cached, loaded.cached) == (False, True)
    for one in (compiled, loaded):
        assert 200_000 <= one.arguments <= 200_200, "x, 1,000 by 50 numbers"
        assert 200_000 <= one.results <= 200_200, "y, as large"
        assert one.temporary >= 4_000_000, "x @ x.T, between them"
        assert one.donated == 0


@pytest.mark.slow
def test_operations_of_eager_mode_are_kept_too(runs: Runs) -> None:
    runs(EAGER)
    second, printed, _ = runs(EAGER, start=anew)
    assert printed == "[2.5, 2.5, 2.5]\n"
    assert {one.trigger for one in second} >= {"eager"}
    assert all(one.cached for one in second)


def test_a_function_over_jax_is_compiled_each_time_as_its_graph_does_not_say_what_it_computes(runs: Runs) -> None:
    compiles, printed, _ = runs(FUNCTION_OVER_JAX, "1")
    assert {one.unkept for one in compiles if not one.kept} == {"it holds a function over jax"}
    _, printed_again, _ = runs(FUNCTION_OVER_JAX, "2")
    assert (printed, printed_again) == ("[2.0, 2.0]\n", "[3.0, 3.0]\n")


def test_off_keeps_nothing_and_says_so_in_the_recording(runs: Runs) -> None:
    compiles, _, _ = runs(TRAINING, XLAPROF_CACHE_DIR="off", XDG_CACHE_HOME=str(runs.cache))
    assert {one.unkept for one in compiles} == {"XLAPROF_CACHE_DIR is off"}
    assert not runs.cache.exists()


@pytest.mark.slow
def test_many_processes_at_once_one_of_which_is_killed_while_it_keeps_a_program(runs: Runs) -> None:
    dies = "import os, signal; os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    environment = {**os.environ, "XLAPROF_CACHE_DIR": str(runs.cache)}
    many = [
        processes.Forked("-c", program, str(runs.tmp / f"many{i}.log"), env=environment)
        for i, program in enumerate([TRAINING, dies + TRAINING, TRAINING])
    ]
    one, none, other = (process.wait() for process in many)
    assert one.stdout == other.stdout
    assert not none.stdout
    assert [done.returncode for done in (one, none, other)] == [0, -signal.SIGKILL, 0]
    assert [file.suffix for file in runs.files() if file.suffix != ".program"] == [".new"]
    after, printed, said = runs(TRAINING, start=anew)
    assert printed == one.stdout
    assert all(one.cached for one in after)
    assert not said


# -- in this process --------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> folders.ProgramFolder:
    """This process's folder of programs, which are all unknown."""
    xr.forget_graphs()
    monkeypatch.setattr(persistent, "_forgotten", False)
    made = folders.ProgramFolder(tmp_path / "programs", 2_000_000_000)
    monkeypatch.setattr(persistent, "_programs", lambda: made)
    return made


def kept(folder: folders.ProgramFolder) -> list[Path]:
    return sorted(folder.path.glob("*.program"), key=lambda file: file.stat().st_mtime_ns)


def compile_one(power: int) -> None:
    """A program of its own for each ``power``."""
    (torch.ones(3, power + 2, device="xla") + 1).cpu()


def again() -> None:
    """As in a new process, which shares the folder."""
    xr.forget_graphs()
    persistent._forgotten = False


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-20] + bytes(20),
        lambda content: b"something else",
        lambda content: content.replace(b"program 1", b"program 0"),
    ],
    ids=["empty", "torn", "damaged", "foreign", "of another version"],
)
def test_what_cannot_be_loaded_is_compiled_again_and_said_once(
    folder: folders.ProgramFolder, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for power in (7, 8):
        compile_one(power)
    whole = {file: file.read_bytes() for file in kept(folder)}
    for file, content in whole.items():
        file.write_bytes(damage(content))
    again()
    for power in (7, 8):
        compile_one(power)
    said = capsys.readouterr().err
    assert said.count("which cannot be loaded") == len(said.splitlines()) == 1
    assert set(kept(folder)) == set(whole)
    again()
    for power in (7, 8):
        compile_one(power)
    assert not capsys.readouterr().err, "they are whole again"


def test_a_folder_that_is_a_file_is_said_once_and_changes_nothing(
    folder: folders.ProgramFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.path.write_text("not a folder")
    for power in (9, 10):
        compile_one(power)
    said = capsys.readouterr().err
    assert said.count("xlaprof: the folder of compiled programs") == len(said.splitlines()) == 1
    assert folder.path.read_text() == "not a folder"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_folder_is_its_users_alone(folder: folders.ProgramFolder, capsys: pytest.CaptureFixture[str]) -> None:
    compile_one(11)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in kept(folder)} == {0o600}
    before = kept(folder)
    folder.path.chmod(0o777)
    folder._usable = None  # as in a new process
    compile_one(12)
    assert kept(folder) == before
    assert "is no folder of this user's alone" in capsys.readouterr().err


def test_without_a_setting_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XLAPROF_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = folders.from_environment()
    assert made is not None
    assert made.path.parts[-2:] == ("xlaprof", "programs")
    for off in ("off", "OFF", "0"):
        monkeypatch.setenv("XLAPROF_CACHE_DIR", off)
        assert folders.from_environment() is None


def test_the_longest_unused_go_where_the_folder_is_full(folder: folders.ProgramFolder) -> None:
    for power in range(3):
        compile_one(power)
    oldest, *others = kept(folder)
    for age, file in enumerate([*others, oldest]):  # the oldest was used last
        os.utime(file, (1_000_000 + age, 1_000_000 + age))
    folder.limit, folder._room = sum(file.stat().st_size for file in kept(folder)), None
    compile_one(3)
    left = kept(folder)
    assert sum(file.stat().st_size for file in left) <= folder.limit
    assert others[0] not in left
    assert oldest in left


def test_a_program_from_the_folder_gives_its_inputs_up_and_tells_its_memory_as_the_compiled_one(
    folder: folders.ProgramFolder,
) -> None:
    from xlaprof.runtime.execution.program import cache

    needs = []
    for _ in range(2):
        x = torch.ones(256, 256, device="xla")
        xr.sync()
        x.add_(1.5)
        xr.sync()
        assert x[0].tolist() == [2.5] * 256
        needs.append(sorted((program.hash, program.needs, program.donated) for program in cache._programs.values()))
        cache.clear()
        for tape in tapes.existing():
            tape.forget()
    before, after = ({graph: rest for graph, *rest in one} for one in needs)
    shared = before.keys() & after.keys()
    assert {graph: before[graph] for graph in shared} == {graph: after[graph] for graph in shared}
    assert any(donated for _, donated in before.values())


def test_a_setting_of_jax_in_force_for_a_while_is_part_of_the_name(folder: folders.ProgramFolder) -> None:
    import jax

    compile_one(5)
    again()
    with jax.default_matmul_precision("highest"):
        compile_one(5)
    assert len({file.name for file in kept(folder)}) == 2


def test_after_clearing_nothing_is_taken_from_the_folder(folder: folders.ProgramFolder) -> None:
    compile_one(6)
    xr.clear_compile_cache()
    assert persistent._forgotten


@pytest.mark.parametrize("size", ["much", "nan", "inf"])
def test_a_bad_size_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: str) -> None:
    monkeypatch.setenv("XLAPROF_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("XLAPROF_CACHE_MB", size)
    made = folders.from_environment()
    assert made is not None
    assert made.limit == 2_048_000_000
    assert capsys.readouterr().err == f"xlaprof: XLAPROF_CACHE_MB={size} is no number of megabytes; 2048 is used\n"
