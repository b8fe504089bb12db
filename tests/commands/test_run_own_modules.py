"""Programs with files named like the modules that xlaprof uses: they import their own, and get their report."""

import subprocess
import sys
from pathlib import Path

import pytest
from recording import Recorded

ASKS = """
import os, sys
said = [f"{{name}} {{getattr(__import__(name), 'is_the_programs_own', False)}}\\n" for name in {names!r}]
os.write(1, "".join(said).encode())  # whole: two ranks write to one pipe
import xlaprof
with xlaprof.StepTrace("train", step_num=0):
    pass
"""


def python(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The top-level modules that are there when a program begins under ``xlaprof run``, and some that come later."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "ask.py").write_text("import sys; print(*{name.partition('.')[0] for name in sys.modules})")
    names = python(folder, "-m", "xlaprof", "run", "--no-report", "ask.py").stdout.split()
    assert len(names) > 100
    later = {"rich", "numpy", "difflib", "html", "unicodedata", "gzip", "tokenize", "queue"}
    return sorted({*names, *later} - {"__main__", "xlaprof", "importlib", "runpy"})  # the last two need each other


@pytest.fixture
def program(tmp_path: Path, loaded: list[str]) -> Path:
    """A program with a file beside it for each of these names, which asks whose it imports."""
    folder = tmp_path / "program"
    package = folder / "pkg"
    package.mkdir(parents=True)
    for name in loaded:
        (folder / f"{name}.py").write_text("is_the_programs_own = True\n")
    (folder / "train.py").write_text(ASKS.format(names=loaded))
    (package / "__init__.py").write_text("import queue\nassert queue.is_the_programs_own\n")
    (package / "__main__.py").write_text(ASKS.format(names=loaded))
    return folder


def without_xlaprof(folder: Path, names: list[str], *command: str) -> list[str]:
    """What the program prints under Python, where the module that it imports last is not there."""
    (folder / "xlaprof.py").write_text("import sys; sys.exit()")
    plain = python(folder.parent, *command)
    (folder / "xlaprof.py").unlink()
    assert len(plain.stdout.splitlines()) == len(names), plain.stderr
    return plain.stdout.splitlines()


def test_a_script_imports_the_files_beside_it(program: Path, loaded: list[str]) -> None:
    plain = without_xlaprof(program, loaded, "program/train.py")
    ours = python(program.parent, "-m", "xlaprof", "run", "program/train.py")
    assert ours.stdout.splitlines() == plain
    assert sum(line.endswith("True") for line in plain) > 70
    assert "train" in ours.stderr  # the report
    assert "internal error" not in ours.stderr
    assert "Traceback" not in ours.stderr


def test_they_are_in_nobodys_way_where_the_launcher_runs_in_their_folder(program: Path, loaded: list[str]) -> None:
    """``python -m`` looks there first: what it needs itself, before xlaprof has begun, nobody can have there."""
    for name in python(program.parent, "-c", "import __future__, runpy, sys; print(*sys.modules)").stdout.split():
        (program / f"{name}.py").unlink(missing_ok=True)
    ours = python(program, "-m", "xlaprof", "run", "train.py")
    asked = dict(line.split() for line in ours.stdout.splitlines())
    assert {"queue", "tokenize", "platform", "random", "gzip", "rich", "msgspec"} <= {
        name for name, own in asked.items() if own == "True"
    }, ours.stderr
    assert "train" in ours.stderr


def test_a_module_imports_the_files_of_the_current_folder(program: Path, loaded: list[str]) -> None:
    (program / "go.py").write_text(
        "import os, sys\nos.chdir(sys.argv.pop(1))\nfrom xlaprof.cli import main\nsys.exit(main())\n"
    )
    elsewhere = program.parent / "elsewhere"
    elsewhere.mkdir()
    (program / "go.py").rename(elsewhere / "go.py")
    ours = python(program.parent, "elsewhere/go.py", "program", "run", "-m", "pkg")
    asked = dict(line.split() for line in ours.stdout.splitlines())
    assert {"queue", "tokenize", "platform", "random", "gzip", "rich", "msgspec", "re", "asyncio"} <= {
        name for name, own in asked.items() if own == "True"
    }, ours.stderr
    assert "train" in ours.stderr


def test_ranks_of_torchrun_import_the_files_beside_their_script(program: Path, loaded: list[str]) -> None:
    plain = without_xlaprof(program, loaded, "program/train.py")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ours = python(program.parent, *torchrun, "-m", "xlaprof", "run", "program/train.py")
    assert sorted(ours.stdout.splitlines()) == sorted(plain * 2), ours.stderr
    assert ours.returncode == 0, ours.stderr
    for rank in (0, 1):
        assert "train" in Recorded(program.parent / f"run.rank{rank}.log").texts.values()
    assert "internal error" not in ours.stderr
    assert "Traceback" not in ours.stderr
