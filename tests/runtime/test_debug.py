"""``PT_XLA_DEBUG``: PyTorch/XLA's blocks, and after each the real reason. Read as PyTorch/XLA's own tests read them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import xlaprof.runtime as xr
from xlaprof.runtime.instruments import debug

PROGRAM = """
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp
from torch_xla.distributed.parallel_loader import MpDeviceLoader

device = torch_xla.device()
said = ["{first}"]

def story(name):
    print("##", name, file=open("{file}", "a"))

story("sync")
a = torch.randn(2, 2, device=device)
torch_xla.sync()
story("mark_step")
a = torch.randn(3, 2, device=device)
xm.mark_step()
story("step_trace")
with xp.StepTrace("train"):
    b = torch.randn(3, 3, device=device)
story("print")
c = torch.randn(5, 5, device=device)
print(c)
story("item")
d = (a * 2.5).sum()
d.item()
story("reads")
for _ in range(30):
    a.cpu()
torch_xla.sync()
story("loader")
for data, target in MpDeviceLoader([(torch.zeros(4, 3), torch.zeros(4))] * 5, device):
    dummy = data + 100
story("compile")
@torch_xla.compile
def double(x):
    return x * 2.5
e = double(b)
story("dynamo")
f = torch.randn(4, 4, device=device)
g = torch.compile(lambda t: t * 100, backend="openxla")(f)
story("shape")
for n in (6, 7):
    h = torch.ones(n, 2).to(device) * 7.5
    torch_xla.sync()
story("fallback")
torch.linalg.eig(torch.eye(2).to(device))
story("end")
"""


class Block(NamedTuple):
    kind: str  # "Compilation", "Execution"
    cause: str
    hash: str
    inputs: int
    outputs: int
    frames: list[str]
    ours: str


def _blocks(text: str) -> list[Block]:
    found = re.finditer(
        r"^(\w+) Analysis: \1 Cause\n\1 Analysis:   (.*)\n\1 Analysis: Graph Info: \n"
        r"(?:\1 Analysis:   Graph Name: .*\n)?"
        r"\1 Analysis:   Graph Hash: (\w+)\n\1 Analysis:   Number of Graph Inputs: (\d+)\n"
        r"\1 Analysis:   Number of Graph Outputs: (\d+)\n\1 Analysis: Python Frame Triggered Execution: \n"
        r"((?:\1 Analysis:   .*\n)+)\1 Analysis: -{80}\n\1 Analysis: ={80}\n((?:xlaprof: .*\n)*)",
        text,
        re.MULTILINE,
    )
    return [
        Block(kind, cause, h, int(i), int(o), [line.split("Analysis:   ")[1] for line in frames.splitlines()], ours)
        for kind, cause, h, i, o, frames, ours in (m.groups() for m in found)
    ]


class Told:
    """What was printed in each part of the program."""

    def __init__(self, text: str) -> None:
        self.text = text
        parts = re.split(r"^## (\w+)\n", text, flags=re.MULTILINE)
        self.parts = dict(zip(parts[1::2], parts[2::2], strict=True))

    def of(self, part: str, kind: str) -> list[Block]:
        return [block for block in _blocks(self.parts[part]) if block.kind == kind]


@pytest.fixture(scope="module", params=["2", "1"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("debug")
    file, script = folder / "debug.txt", folder / "program.py"
    file.touch()
    script.write_text(PROGRAM.replace("{file}", str(file)).replace("{first}", request.param))
    start = "import runpy, xlaprof.import_hook as h; h.serve(); runpy.run_path({!r}, run_name='__main__')"
    environment = {**os.environ, "PT_XLA_DEBUG_LEVEL": request.param, "PT_XLA_DEBUG_FILE": str(file)}
    done = subprocess.run(
        [sys.executable, "-c", start.format(str(script))], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Told(f"{request.param}\n{file.read_text()}")


def _level(told: Told) -> int:
    return int(told.text[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "cause", "inputs"),
    [
        ("sync", "user torch_xla.sync", 1),  # the seed
        ("mark_step", "user mark_step", 1),
        ("step_trace", "torch_xla.sync when exiting a profiler StepTrace region", 1),
        ("print", "most likely user code trying to access tensor value before torch_xla.sync", 1),
        ("item", "most likely user code trying to access tensor value before torch_xla.sync", 2),
    ],
)
def test_a_graph_that_is_compiled_and_run_is_told_with_its_cause(
    told: Told, part: str, cause: str, inputs: int
) -> None:
    (compiled,) = told.of(part, "Compilation")
    assert (compiled.cause, compiled.inputs, compiled.outputs) == (cause, inputs, 1)
    assert any("program.py" in frame for frame in compiled.frames[:4])
    ran = told.of(part, "Execution")
    assert [(block.cause, block.hash) for block in ran] == ([(cause, compiled.hash)] if _level(told) > 1 else [])
    after = told.parts[part]
    assert after.count("Post Compilation Analysis: Graph input size: 0.0") == 1
    assert after.count("Post Compilation Analysis: Compiled program size: 0.0") == 1


@pytest.mark.slow
def test_the_loader_compiles_once_and_runs_at_every_step(told: Told) -> None:
    cause = "torch_xla.sync in parallel loader at step end"
    (compiled,) = told.of("loader", "Compilation")
    assert (compiled.cause, compiled.inputs, compiled.outputs) == (cause, 2, 1)
    ran = told.of("loader", "Execution")
    assert [block.cause for block in ran] == [cause] * (5 if _level(told) > 1 else 0)


@pytest.mark.slow
def test_compile_and_dynamo_are_told_apart_from_what_was_pending(told: Told) -> None:
    assert [block.cause for block in told.of("compile", "Compilation")][-1] == "torch_xla.compile"
    pending, graph = told.of("dynamo", "Compilation")
    assert pending.cause == "torch_xla.sync when dynamo processing input graphs"
    assert (graph.cause, graph.inputs) == ("dynamo is compiling a FX graph to HLO", 2)
    if _level(told) > 1:
        causes = [block.cause for block in told.of("dynamo", "Execution")]
        assert causes == [pending.cause, "dynamo is executing a compiled program"]


@pytest.mark.slow
def test_the_real_reason_follows(told: Told) -> None:
    first, second = told.of("shape", "Compilation")
    assert "shape changed from f32[6,2] to f32[7,2]" in second.ours
    assert "program.py" in second.ours
    assert "h = torch.ones(n, 2).to(device) * 7.5" in second.ours
    assert "from f32[6,2]" not in first.ours
    if _level(told) > 1:
        (read,) = told.of("item", "Execution")
        assert "run for a value that is read" in read.ours
        assert "d.item()" in read.ours


@pytest.mark.slow
def test_frames_begin_with_what_was_called(told: Told) -> None:
    assert told.of("sync", "Compilation")[0].frames[0].startswith("sync (")
    assert told.of("mark_step", "Compilation")[0].frames[0].startswith("mark_step (")


def test_further_out_all_frames_are_shown() -> None:
    frames: list[str] = []
    xr.compile(lambda: frames.extend(debug.frames_of("sync")))()
    assert frames[0].startswith(f"<lambda> ({__file__}:")
    assert frames[1].startswith("compiled (")


@pytest.mark.slow
def test_metrics_are_judged_at_barriers_and_fallbacks_summed_up_at_the_end(told: Told) -> None:
    assert re.search(
        r"^pt-xla-profiler: TransferFromDeviceTime too frequent: 32 counts during \d+ steps$",
        told.parts["reads"],
        re.MULTILINE,
    )
    end = told.parts["end"]
    assert "Unlowered Op usage summary (more of these ops, lower performance)\n" in end
    assert re.search(r'FRAME \(count=1\):\nUnlowered Op: "linalg_eig"\nPython Frames:\n(  .*\n)*?  .*program.py', end)


@pytest.mark.slow
def test_nothing_is_said_unasked(tmp_path: Path) -> None:
    program = "import torch, xlaprof.runtime as xr; (torch.ones(2).to('xla') + 1).cpu(); xr.sync()"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PT_XLA_DEBUG")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == ("", "")
