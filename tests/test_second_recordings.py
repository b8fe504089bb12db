"""What a second recording does to the first: of the same process, of a program within a program, of a rank."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import processes
import pytest
from recording import Recorded

import xlaprof
from xlaprof.events import End


def record(path: Path, *names: str) -> None:
    with xlaprof.record(path):
        for name in names:
            with xlaprof.Trace(name):
                pass


def names(path: Path) -> list[str]:
    return [name for name, _ in Recorded(path).scopes]


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(textwrap.dedent(program))
    return processes.run(*arguments, "program.py", cwd=folder)


def test_the_newest_has_the_name_and_the_earlier_ones_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    record(log, "first")
    assert capsys.readouterr().err == ""
    record(log, "second")
    kept = f"xlaprof: {log} is recorded anew: the earlier recording of this process is now"
    assert capsys.readouterr().err == f"{kept} {tmp_path / 'a.1.log'}\n"
    record(log, "third")
    assert capsys.readouterr().err == f"{kept} {tmp_path / 'a.2.log'}\n"
    assert [names(tmp_path / name) for name in ("a.log", "a.1.log", "a.2.log")] == [["third"], ["first"], ["second"]]
    assert (tmp_path / "a.1.log").stat().st_mode & 0o777 == 0o600


def test_no_file_that_is_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.1.log").write_text("mine")
    (tmp_path / "a.2.log").symlink_to("nowhere")
    record(tmp_path / "a.log", "first")
    record(tmp_path / "a.log", "second")
    assert names(tmp_path / "a.3.log") == ["first"]
    assert (tmp_path / "a.1.log").read_text() == "mine"


def test_another_processes_recording_is_replaced(tmp_path: Path) -> None:
    program = "import xlaprof\nwith xlaprof.record('a.log'): pass\n"
    assert [run(tmp_path, program).stderr for _ in range(2)] == ["", ""]
    record(tmp_path / "a.log", "here")
    run(tmp_path, program)
    record(tmp_path / "a.log", "here again")  # the file there is the other process's by now
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["a.log"]


def test_a_file_that_was_moved_away_or_must_not_be_replaced_stays(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    record(log, "first")
    with pytest.raises(xlaprof.RecordingError, match="will not overwrite"), xlaprof.record(log, overwrite=False):
        pass
    assert names(log) == ["first"]
    log.rename(tmp_path / "mine.log")
    record(log, "second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "mine.log"]


def test_one_that_names_the_recording_that_it_joins_joins_it_without_a_word(tmp_path: Path) -> None:
    program = """
        import xlaprof
        for name in ("first", "second"):
            with xlaprof.record("run.log"), xlaprof.Trace(name):
                pass
    """
    done = run(tmp_path, program, "-m", "xlaprof", "run", "--no-report")
    assert (done.returncode, done.stderr) == (0, "")
    assert names(tmp_path / "run.log") == ["first", "second"]
    assert [path.name for path in tmp_path.glob("*.log")] == ["run.log"]


ONE_PROCESS = """
    import sys, xlaprof, torch_xla.distributed.xla_multiprocessing as xmp
    from torch_xla._internal import pjrt
    def work(*index):
        with xlaprof.Trace("in the rank"):
            return "worked"
    if __name__ == "__main__":
        with xlaprof.Trace("in the parent"):
            HOW
"""


@pytest.mark.parametrize(
    ("how", "log"),
    [
        pytest.param(
            "print(pjrt.run_multiprocess(work, start_method='forkserver'))", "run.rank0.log", marks=pytest.mark.slow
        ),
        ("print(pjrt.run_multiprocess(work))", "run.rank0.log"),
        ("xmp.spawn(work, nprocs=1)", "run.log"),  # in the same process
    ],
    ids=["forkserver", "spawn", "in place"],
)
def test_one_process_that_is_launched_under_a_recording_is_recorded(tmp_path: Path, how: str, log: str) -> None:
    done = run(tmp_path, ONE_PROCESS.replace("HOW", how), "-m", "xlaprof", "run", "--no-report")
    assert (done.returncode, done.stderr) == (0, "")
    recorded = {path.name: names(path) for path in tmp_path.glob("*.log")}
    assert recorded == ({log: ["in the rank"]} if log != "run.log" else {}) | {
        "run.log": ["in the parent"] if log != "run.log" else ["in the rank", "in the parent"]
    }


def test_a_worker_whose_modules_import_xlaprof_keeps_what_it_records(tmp_path: Path) -> None:
    """What was registered for the end of the worker's process before its work began is forgotten by multiprocessing."""
    program = """
        import multiprocessing, multiprocessing.util, xlaprof, xlaprof.runtime
        def work():
            xlaprof.start_recording("worker.log")
            with xlaprof.Trace("in the worker"):
                pass
        if __name__ == "__main__":
            worker = multiprocessing.get_context("forkserver").Process(target=work)
            worker.start()
            worker.join()
    """
    done = run(tmp_path, program)
    assert (done.returncode, done.stderr) == (0, "")
    assert names(tmp_path / "worker.log") == ["in the worker"]
    assert len(Recorded(tmp_path / "worker.log").of(End)) == 1
