"""The second start of a program compiles nothing: what the first one compiled is found by its graph."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import xlaprof.runtime as xr
from xlaprof import events, log
from xlaprof.runtime.execution import persistent, program_folder
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

EAGER = """
import sys, torch, xlaprof, xlaprof.runtime as xr
with xlaprof.record(sys.argv[1]), xr.eager_mode_context(True):
    print((torch.ones(3, device="xla") * 2.5).tolist())
"""


class Runs:
    """Runs of programs, in processes of their own, that share the folder ``cache``."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp, self.cache, self.number = tmp_path, tmp_path / "cache", 0

    def __call__(self, program: str, *arguments: str, **environment: str) -> tuple[list[events.Compile], str, str]:
        """What was compiled, and what the program and xlaprof said."""
        self.number += 1
        recorded = self.tmp / f"{self.number}.log"
        done = subprocess.run(
            [sys.executable, "-c", program, str(recorded), *arguments],
            env={**os.environ, "XLAPROF_CACHE_DIR": str(self.cache), **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        compiles = [event for event in log.read(recorded) if isinstance(event, events.Compile)]
        assert compiles
        return compiles, done.stdout, done.stderr

    def files(self) -> list[Path]:
        return sorted(self.cache.iterdir())


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_the_second_start_compiles_nothing_and_computes_the_same(runs: Runs) -> None:
    first, printed, _ = runs(TRAINING)
    second, printed_again, said = runs(TRAINING)
    assert printed == printed_again
    assert not said
    assert not any(one.cached for one in first)
    assert all(one.kept and not one.unkept for one in first)
    assert [one.graph for one in second] == [one.graph for one in first]
    assert all(one.cached and one.lower == 0 for one in second)
    assert all(one.spared > 0 for one in second)
    assert sum(one.dur for one in second) < sum(one.dur for one in first) / 2


def test_a_changed_program_compiles_what_changed(runs: Runs) -> None:
    first, _, _ = runs(TRAINING)
    second, _, _ = runs(TRAINING.replace("randn(8, 6)", "randn(9, 6)"))
    known = {one.graph for one in first}
    assert {one.graph for one in second if one.cached} == {one.graph for one in second} & known
    assert not all(one.cached for one in second)


def test_other_flags_are_other_programs(runs: Runs) -> None:
    runs(TRAINING)
    second, _, _ = runs(TRAINING, XLA_FLAGS="--xla_cpu_enable_fast_math=true")
    assert not any(one.cached for one in second)


def test_operations_of_eager_mode_are_kept_too(runs: Runs) -> None:
    runs(EAGER)
    second, printed, _ = runs(EAGER)
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
    assert {one.unkept for one in compiles} == {"the folder of programs is off"}
    assert not runs.cache.exists()


def test_without_a_setting_the_folder_is_the_users(runs: Runs) -> None:
    runs(TRAINING, XLAPROF_CACHE_DIR="", XDG_CACHE_HOME=str(runs.cache), HOME=str(runs.tmp))
    (found,) = {file.parent for file in runs.tmp.rglob("*.program")}
    assert found.parts[-2:] == ("xlaprof", "programs")
    assert found.stat().st_mode & 0o777 == 0o700


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
def test_what_cannot_be_loaded_is_compiled_again_and_said_once(runs: Runs, damage: Any) -> None:
    _, printed, _ = runs(TRAINING)
    for file in runs.files():
        file.write_bytes(damage(file.read_bytes()))
    second, printed_again, said = runs(TRAINING)
    assert printed == printed_again
    assert not any(one.cached for one in second)
    assert said.count("which cannot be loaded") == len(said.splitlines()) == 1
    third, _, said = runs(TRAINING)
    assert all(one.cached for one in third)
    assert not said


def test_a_folder_that_is_a_file_is_said_once_and_changes_nothing(runs: Runs) -> None:
    runs.cache.write_text("not a folder")
    compiles, printed, said = runs(TRAINING)
    assert printed
    assert said.count("xlaprof: the folder of compiled programs") == len(said.splitlines()) == 1
    assert {one.unkept for one in compiles} == {"the folder cannot be used"}
    assert runs.cache.read_text() == "not a folder"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_folder_that_others_may_write_to_is_not_used(runs: Runs) -> None:
    runs(TRAINING)
    runs.cache.chmod(0o777)
    compiles, _, said = runs(TRAINING)
    assert not any(one.cached for one in compiles)
    assert "is no folder of this user's alone" in said


def test_many_processes_at_once(runs: Runs) -> None:
    program = [sys.executable, "-c", TRAINING]
    environment = {**os.environ, "XLAPROF_CACHE_DIR": str(runs.cache)}
    many = [
        subprocess.Popen([*program, str(runs.tmp / f"many{i}.log")], env=environment, stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    printed = {process.communicate(timeout=300)[0] for process in many}
    assert len(printed) == 1
    assert not [file for file in runs.files() if file.suffix != ".program"]
    after, printed_after, said = runs(TRAINING)
    assert {printed_after} == printed
    assert all(one.cached for one in after)
    assert not said


def test_a_process_killed_while_it_keeps_a_program_leaves_no_torn_one(runs: Runs) -> None:
    dies = "import os, signal; os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run(
        [sys.executable, "-c", dies + TRAINING, str(runs.tmp / "killed.log")],
        env={**os.environ, "XLAPROF_CACHE_DIR": str(runs.cache)},
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert [file.suffix for file in runs.files()] == [".new"]
    compiles, _, said = runs(TRAINING)
    assert not any(one.cached for one in compiles)
    assert not said


# -- in this process --------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> program_folder.ProgramFolder:
    """This process's folder of programs."""
    monkeypatch.setattr(persistent, "_forgotten", False)
    made = program_folder.ProgramFolder(tmp_path / "programs", 2_000_000_000)
    monkeypatch.setattr(persistent, "_programs", lambda: made)
    return made


def kept(folder: program_folder.ProgramFolder) -> list[Path]:
    return sorted(folder.path.glob("*.program"), key=lambda file: file.stat().st_mtime_ns)


def compile_one(power: int) -> None:
    """A program of its own for each ``power``."""
    (torch.ones(3, power + 2, device="xla") + 1).cpu()


def test_the_longest_unused_go_where_the_folder_is_full(folder: program_folder.ProgramFolder) -> None:
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
    folder: program_folder.ProgramFolder,
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


def test_a_setting_of_jax_in_force_for_a_while_is_part_of_the_name(folder: program_folder.ProgramFolder) -> None:
    import jax

    compile_one(5)
    xr.forget_graphs()
    persistent._forgotten = False
    with jax.default_matmul_precision("highest"):
        compile_one(5)
    assert len(kept(folder)) >= 2


def test_after_clearing_nothing_is_taken_from_the_folder(folder: program_folder.ProgramFolder) -> None:
    compile_one(6)
    xr.clear_compile_cache()
    assert persistent._forgotten


def test_a_bad_size_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XLAPROF_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("XLAPROF_CACHE_MB", "much")
    made = program_folder.from_environment()
    assert made is not None
    assert made.limit == 2_048_000_000
    assert capsys.readouterr().err == "xlaprof: XLAPROF_CACHE_MB=much is no number of megabytes; 2048 is used\n"
