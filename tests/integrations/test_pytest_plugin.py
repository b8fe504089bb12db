"""The pytest plugin, in pytests of its own: budgets, the fixture, and that nobody notices it who did not ask."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import processes
import pytest
from recording import Recorded, recording

import xlaprof

PLUGIN = "xlaprof.integrations.pytest_plugin"
ROOT = Path(__file__).parents[2]

#: A training loop on the embedded runtime; ``read`` stops the device in every step, ``ragged`` changes a shape.
TRAINING = """
import pytest
import torch
import xlaprof
import xlaprof.runtime as xr

def train(steps=12, read=False, ragged=False):
    model = torch.nn.Linear(4, 4).to("xla")
    for n in range(steps):
        with xlaprof.StepTrace("train", step_num=n):
            size = 3 if ragged and n % 6 == 5 else 8
            loss = model(torch.ones(size, 4, device="xla")).sum()
            loss.backward()
            xr.sync()
            if read:
                loss.item()
    return loss.item()
"""

READ = TRAINING.splitlines().index("                loss.item()") + 1


class Result:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.text = done.stdout + done.stderr

    def counts(self) -> dict[str, int]:
        words = self.text.splitlines()[-1].strip("= ").split(" in ")[0].replace(",", "").split()
        return {what: int(number) for number, what in zip(words[::2], words[1::2], strict=False)}


@pytest.fixture
def run(tmp_path: Path):
    """Runs pytest on the given tests, in a process of its own and with no plugins but those named."""

    def run(tests: str, *arguments: str, plugins: tuple[str, ...] = (PLUGIN,), config: str = "") -> Result:
        (tmp_path / "test_it.py").write_text(tests)
        (tmp_path / "pytest.ini").write_text(
            f"[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n{config}\n"
        )
        named = [part for plugin in plugins for part in ("-p", plugin)]
        command = ["-m", "pytest", "-p", "no:cacheprovider", *named, *arguments]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "COLUMNS": "200"}
        if tests.startswith(TRAINING):  # which imports torch and jax anyway
            return Result(processes.run(*command, cwd=tmp_path, env=environment))
        whole = [sys.executable, *command]
        return Result(subprocess.run(whole, cwd=tmp_path, capture_output=True, text=True, timeout=900, env=environment))

    return run


def test_budgets_are_kept_and_broken_with_the_line_and_the_advice(run) -> None:
    result = run(
        TRAINING
        + """
@pytest.mark.xlaprof(max_recompiles=0, max_transfers_per_step=0)
def test_kept():
    train()

@pytest.mark.xlaprof(max_transfers_per_step=0)
def test_reads():
    train(read=True)

@pytest.mark.xlaprof(max_recompiles=0, after_step=2)
def test_recompiles():
    train(ragged=True)

@pytest.mark.xlaprof
def test_bare_means_no_findings():
    train(read=True)

@pytest.mark.xlaprof(max_transfers_per_step=0)
@pytest.mark.xfail(strict=True)
def test_known():
    train(read=True)

@pytest.mark.xlaprof(max_recompiles=0)
def test_kept_again():
    train()
"""
    )
    assert result.counts() == {"failed": 3, "passed": 2, "xfailed": 1}, result.text
    assert "max_transfers_per_step: 1 transfer per step (12 in 12 steps), 0 allowed" in result.text
    assert f"test_it.py:{READ}  loss.item()" in result.text
    assert "Fix: Keep the loss on the device" in result.text
    assert "max_recompiles: 1 recompilation, 0 allowed" in result.text
    assert "no_findings: " in result.text
    assert "--xlaprof-log-dir DIR keeps the recording" in result.text
    assert "INTERNALERROR" not in result.text


ALIKE = (
    TRAINING
    + """
def compiled(x):
    return (x * 2).relu()

compiled = torch.compile(compiled, backend="eager")

def other():
    for size in (8, 3):
        train(1), (torch.ones(size, 4, device="xla") * 3).sum().item()

def test_unmarked_comes_first():
    train(ragged=True)
    compiled(torch.ones(4)), compiled(torch.ones(5))
    torch.ones(7, 3, device="xla").mul_(2)  # never run
    other()

@pytest.mark.xlaprof(max_compiles=0)
def test_compiles():
    train()

@pytest.mark.xlaprof(max_recompiles=0, after_step=2)
def test_recompiles():
    train(ragged=True)

@pytest.mark.xlaprof(max_recompiles=0)
def test_guards():
    compiled(torch.ones(4)), compiled(torch.ones(5))

@pytest.mark.xlaprof(max_recompiles=0)
def test_kept():
    train()
"""
)


def test_a_test_is_judged_by_itself_whatever_ran_before_it(run, monkeypatch) -> None:
    monkeypatch.delenv("CI", raising=False)  # under which pytest writes each failure a second time, in full
    together, alone = run(ALIKE), run(ALIKE, "-k", "not unmarked")
    assert together.counts() == {"failed": 3, "passed": 2}, together.text
    assert alone.counts() == {"failed": 3, "passed": 1, "deselected": 1}, alone.text
    told = [
        sorted(
            re.sub(r"[\d.]+ m?s\b", "TIME", line.partition(" A fix gives back")[0])  # if it is more than it costs
            for line in re.findall(
                r"^max_\w+: .*$|^ +\S*test_it\.py:\d+ .*$|^ +recompile.*$", result.text, re.MULTILINE
            )
        )
        for result in (together, alone)
    ]
    assert told[0] == told[1]
    assert [line for line in told[0] if line.startswith("max_")] == [
        "max_compiles: 2 compiles, 0 allowed",
        "max_recompiles: 1 recompilation, 0 allowed",
        "max_recompiles: 1 recompilation, 0 allowed",
    ]


def test_a_failing_test_fails_as_it_would_have(run) -> None:
    result = run(
        TRAINING
        + """
@pytest.mark.xlaprof(max_transfers_per_step=0)
def test_fails():
    train(read=True)
    assert 1 == 2, "its own reason"

@pytest.mark.xlaprof(max_recompiles=0)
def test_skips():
    pytest.skip("not today")

@pytest.mark.xlaprof(max_recompiles=0)
def test_still_records():
    train()
"""
    )
    assert result.counts() == {"failed": 1, "passed": 1, "skipped": 1}, result.text
    assert "its own reason" in result.text
    assert "broke its budget" not in result.text


def test_the_fixture_tells_of_the_test_so_far(run) -> None:
    result = run(
        TRAINING
        + """
def test_report(xlaprof_run):
    train(6)
    assert xlaprof_run.report().steps[0].count == 6
    assert not any(finding.kind == "transfer" for finding in xlaprof_run.findings)
    train(12, read=True)
    assert any(finding.kind == "transfer" for finding in xlaprof_run.findings)
    assert xlaprof_run.report().steps[0].count == 18
    assert xlaprof_run.report(since_step=3).steps[0].count < 18
    assert xlaprof_run.path.exists()
    xlaprof_run.check(max_compiles=9)
    with pytest.raises(pytest.fail.Exception, match="max_transfers_per_step: "):
        xlaprof_run.check(max_transfers_per_step=0)

@pytest.mark.xlaprof(max_transfers_per_step=0)
def test_both(xlaprof_run):
    train(6, read=True)
    assert xlaprof_run.report().steps[0].count == 6

def test_neither():
    from xlaprof.recording import recorder
    assert recorder.active is None
"""
    )
    assert result.counts() == {"failed": 1, "passed": 2}, result.text
    assert "broke its budget" in result.text


def test_async_tests_and_those_of_classes(run) -> None:
    result = run(
        TRAINING
        + """
@pytest.mark.xlaprof(max_transfers_per_step=0)
class TestAll:
    async def test_async(self):
        train(read=True)

    def test_sync(self):
        train()

    @pytest.mark.xlaprof(max_transfers_per_step=1)
    def test_nearest_marker_comes_first(self):
        train(read=True)
""",
        plugins=(PLUGIN, "pytest_asyncio.plugin"),
        config="asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function",
    )
    assert result.counts() == {"failed": 1, "passed": 2}, result.text
    assert f"test_it.py:{READ}  loss.item()" in result.text


def test_workers_each_record_their_own_and_logs_are_kept(run, tmp_path: Path) -> None:
    result = run(
        TRAINING
        + """
@pytest.mark.xlaprof(max_transfers_per_step=0)
@pytest.mark.parametrize("read", [False, True])
def test_it(read):
    train(read=read)

@pytest.mark.parametrize("text", ["a/b c", "x" * 300])
def test_names(text, xlaprof_run):
    pass
""",
        "-n2",
        "--xlaprof-log-dir=logs/of tests",
        plugins=(PLUGIN, "xdist.plugin"),
    )
    assert result.counts() == {"failed": 1, "passed": 3}, result.text
    logs = {path.name: path for path in (tmp_path / "logs" / "of tests").iterdir()}
    assert {f"test_it.py-test_{name}.log" for name in ("it[False]", "it[True]", "names[a-b-c]")} < set(logs)
    assert len(logs) == 4
    assert f"(xlaprof report {logs['test_it.py-test_it[True].log']})" in result.text
    from xlaprof.cli import main

    assert main(["check", str(logs["test_it.py-test_it[True].log"]), "--max-transfers-per-step", "0"]) == 1


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ("max_recompile=0", "unknown budget 'max_recompile': did you mean 'max_recompiles'?"),
        ("max_idle='lots'", "max_idle is 'lots', but should be a share like 10% or 0.1"),
        ("3", "the marker takes limits by name, not 3"),
    ],
)
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "in workers"])
def test_a_marker_that_cannot_be_read_is_reported_once(run, limits: str, complaint: str, workers: tuple[str]) -> None:
    result = run(
        f"import pytest\n@pytest.mark.xlaprof({limits})\nclass TestAll:\n"
        + "".join(f"    def test_{n}(self):\n        pass\n" for n in range(9)),
        *workers,
        plugins=(PLUGIN, "xdist.plugin") if workers else (PLUGIN,),
    )
    told = f"xlaprof: {complaint} (this marker is on 8 more, which did not run)"
    assert sum(line.startswith(told) for line in result.text.splitlines()) == 1, result.text
    assert "Traceback" not in result.text
    assert result.counts()["failed"] == 1
    assert "passed" not in result.text


def test_a_limit_of_which_the_recording_knows_nothing_fails_in_one_line(run) -> None:
    result = run("import pytest\n@pytest.mark.xlaprof(max_step_time='1s')\ndef test_it():\n    pass\n")
    assert result.counts() == {"failed": 1}, result.text
    assert "xlaprof: the recording of the test has no steps, so max_step_time cannot be checked" in result.text
    assert "Traceback" not in result.text


def test_a_test_inside_a_recording_is_reported(run) -> None:
    result = run(
        """
import pytest, xlaprof

@pytest.fixture
def outer(tmp_path):
    with xlaprof.record(tmp_path / "outer.log"):
        yield

@pytest.mark.xlaprof(max_recompiles=0)
def test_it(outer):
    pass
"""
    )
    assert result.counts() == {"failed": 1}, result.text
    assert "already recording into" in result.text


def test_it_is_inert_unless_asked_for(run) -> None:
    """It brings in no part of xlaprof but itself, and no framework; nothing is recorded."""
    result = run(
        """
import sys

def test_nothing_came_along():
    assert "xlaprof.integrations.pytest_plugin" in sys.modules
    packages = ("xlaprof", "torch", "jax", "numpy", "msgspec", "rich")
    loaded = {name for name in sys.modules if name.split(".")[0] in packages}
    assert loaded == {"xlaprof", "xlaprof.integrations", "xlaprof.integrations.pytest_plugin"}
"""
    )
    assert result.counts() == {"passed": 1}, result.text


def test_the_marker_is_known_and_explained(run) -> None:
    result = run("def test_it(): pass\n", "--markers")
    assert "@pytest.mark.xlaprof(max_recompiles=None" in result.text


def test_what_was_recorded_so_far_can_be_read_while_recording_goes_on(tmp_path: Path) -> None:
    from xlaprof.recording import recorder

    def names() -> list[str]:
        return [name for name, _ in Recorded(tmp_path / "run.log").steps]

    with recording(tmp_path / "run.log", detail="auto") as recorded:
        with xlaprof.StepTrace("first", step_num=0):
            pass
        assert recorder.active is not None
        assert recorder.active.flush()
        assert names() == ["first"]
        with xlaprof.StepTrace("second", step_num=1):
            pass
    assert recorded().steps == [("first", 0), ("second", 1)]
    assert recorded().notes == ()


def test_the_package_announces_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"xlaprof": PLUGIN}
