"""A source of each sort is added as CONTRIBUTING.md says, and a path that no source reads is refused in one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xlaprof
from xlaprof import cli
from xlaprof.events import Counters, Execute, Source, Stack, Text
from xlaprof.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]

LIBRARY = """
import time
listeners = []

def run():
    start = time.perf_counter_ns()
    for listener in listeners:
        listener(start, start + 2_000)
"""
PROGRAM = """
import mylib
for i in range(3):
    mylib.run()  # the line
"""
TABLE = "step,start_ns,dur_ns\n0,1000,50\n1,2000,60\n2,3000,70\n"


def blocks(language: str) -> list[str]:
    """The examples of CONTRIBUTING.md's section on sources."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("## Adding a source\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def xlaprof_cli(cwd: Path, *args: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"import sys; {before}; from xlaprof import cli; sys.exit(cli.main(sys.argv[1:]))"
    paths = os.pathsep.join(map(str, (ROOT, cwd / "site-packages")))
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(params=["a file of xlaprof's", "a package's entry point"])
def plug_in(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The two examples are installed in ``tmp_path``; what is to be run before xlaprof is."""
    live, file = blocks("python")
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "mylib.py").write_text(LIBRARY)
    if request.param == "a package's entry point":
        [table] = blocks("toml")
        (site / "mylib_source.py").write_text(f"{live}\n\n{file}")
        info = site / "mylib-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylib\nVersion: 1.0\n")
        group = table.replace('[project.entry-points."xlaprof.sources"]', "[xlaprof.sources]").replace('"', "")
        (info / "entry_points.txt").write_text(group)
        return "pass"
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "my_lib.py").write_text(live)
    (folder / "my_table.py").write_text(file)
    return "import xlaprof.sources; xlaprof.sources.__path__.append('sources')"


def test_a_live_source(plug_in: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM)
    done = xlaprof_cli(tmp_path, "run", "--no-report", "script.py", before=plug_in)
    assert (done.returncode, done.stderr) == (0, "")
    recorded = list(xlaprof.read(tmp_path / "run.log"))
    words = Vocabulary(arrays="mylib.numpy", barrier="mylib.wait()", barrier_code="mylib.wait()")
    assert [(e.name, e.words) for e in recorded if isinstance(e, Source)] == [("mylib", words)]
    texts = {e.id: e.text for e in recorded if isinstance(e, Text)}
    stacks = {e.id: e for e in recorded if isinstance(e, Stack)}
    runs = [e for e in recorded if isinstance(e, Execute)]
    assert [(e.seq, e.end - e.start) for e in runs] == [(1, 2_000), (2, 2_000), (3, 2_000)]
    assert {texts[stacks[e.stack].frames[0].code] for e in runs} == {"mylib.run()  # the line"}
    assert [e for e in recorded if isinstance(e, Counters)][-1].counts["ExecuteTime"] == 3


def test_a_file_source(plug_in: str, tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(TABLE)
    done = xlaprof_cli(tmp_path, "report", "steps.csv", "--json", before=plug_in)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["steps"]["count"] == 3
    done = xlaprof_cli(tmp_path, "live", "steps.csv", before=plug_in)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "xlaprof: steps.csv is a mylib step times, which does not grow: xlaprof report steps.csv\n"


def test_a_defect_of_a_source_costs_the_source(tmp_path: Path) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "silent.py").write_text(
        "class Silent:\n    name, module = 'silent', ''\n"
        "    def attach(self, rec): raise OSError('no device')\nLIVE = Silent()\n"
    )
    (tmp_path / "script.py").write_text("print('works')\n")
    before = "import xlaprof.sources; xlaprof.sources.__path__.append('sources')"
    done = xlaprof_cli(tmp_path, "run", "--no-report", "script.py", before=before)
    assert (done.returncode, done.stdout) == (0, "works\n")
    assert done.stderr == (
        "xlaprof: the source broken is left out: ZeroDivisionError: division by zero\n"
        "xlaprof: silent is not observed: OSError: no device\n"
    )


VERBS = (
    "report LOG",
    "check LOG --max-recompiles 0",
    "explain recompile LOG",
    "compare LOG LOG",
    "live LOG",
    "export LOG --to tensorboard -o out",
)


@pytest.mark.parametrize("verb", VERBS)
def test_what_no_source_reads_is_refused_by_every_verb(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08\x12\x07pytorch")
    assert cli.main([str(path) if word == "LOG" else word for word in verb.split()]) == 2
    assert capsys.readouterr() == (
        "",
        f"xlaprof: {path} is no recording that xlaprof reads "
        "(tried: xlaprof log (events as lines of JSON, the first a header); "
        "TORCH_TRACE (a log of PyTorch's structured trace, dedicated_log_torch_trace_*.log, or a folder with one))\n",
    )
