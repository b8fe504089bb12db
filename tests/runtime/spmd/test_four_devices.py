"""The tests of this folder, run on four devices; and what is said where there are not four, or the mode is off."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from xlaprof.runtime import spmd


def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A fresh process with ``env``, its output as text."""
    everything = {**os.environ, "PJRT_DEVICE": "CPU", "OMP_NUM_THREADS": "1", **env}
    return subprocess.run([sys.executable, *args], env=everything, capture_output=True, text=True, check=False)


def test_on_four_devices():
    folder = str(Path(__file__).parent)
    done = python("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", folder, CPU_NUM_DEVICES="4")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_one_mesh_over_two_processes():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    end = f"equal True, loss {loss.item():.4f}, weights {model[0].weight.sum().item():.4f}"

    done = python(str(Path(__file__).parent / "two_processes.py"))
    assert done.returncode == 0, done.stderr[-4000:]
    reported = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert reported == [
        f"rank 0 of 2: 2 devices, a batch of [8, 6], CPU:0 holds rows 0 to 4, {end}",
        f"rank 1 of 2: 2 devices, a batch of [8, 6], CPU:1 holds rows 4 to 8, {end}",
    ]


@pytest.mark.slow
def test_a_checkpoint_of_two_processes(tmp_path):
    done = python(str(Path(__file__).parent / "two_processes_checkpoint.py"), str(tmp_path / "saved"))
    assert done.returncode == 0, done.stderr[-4000:]
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [
        "rank 0: steps [3], step 3, CPU:0 has columns 0 to 3, equal True",
        "rank 1: steps [3], step 3, CPU:1 has columns 3 to 6, equal True",
    ]


def test_the_example(tmp_path):
    example = Path(__file__).parents[3] / "examples" / "spmd.py"
    done = python(str(example), CPU_NUM_DEVICES="4")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    losses = [float(line.split()[-1]) for line in lines if line.startswith("step")]
    assert losses[-1] < losses[0] / 2, "it learns nothing"
    assert "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}" in done.stdout
    assert "compiled after the second step: 0" in lines


@pytest.mark.slow
def test_the_documentation_s_program():
    page = (Path(__file__).parents[3] / "docs" / "spmd.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = python("-c", program, CPU_NUM_DEVICES="4")
    assert done.stdout == "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}\n", done.stderr


def test_the_mode_has_to_be_asked_for():
    mesh = spmd.get_1d_mesh("data")
    with pytest.raises(RuntimeError, match=r"Please enable SPMD via `torch_xla.runtime.use_spmd\(\)`"):
        spmd.mark_sharding(torch.ones(4, 4, device="xla"), mesh, ("data", None))
    assert spmd.get_sharding_spec(torch.ones(2, device="xla")) == ""


def test_a_number_of_devices_that_is_none():
    done = python("-c", "import torch, xlaprof.runtime; torch.ones(2, device='xla')", CPU_NUM_DEVICES="four")
    assert "CPU_NUM_DEVICES=four is no number of devices: set it to 1, 2, 4..." in done.stderr


@pytest.mark.slow
def test_one_device_is_a_mesh_too():
    program = (
        "import torch, xlaprof.runtime as xr; from xlaprof.runtime import spmd as xs; xs.use_spmd();"
        "t = xs.mark_sharding(torch.arange(6.).to('xla'), xs.get_1d_mesh('x'), ('x',));"
        "print(t.sharding_spec, (t + 1).tolist(), len(t.local_shards))"
    )
    done = python("-c", program, CPU_NUM_DEVICES="1")
    assert done.stdout == "{replicated} [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] 1\n", done.stderr


def test_the_variable_turns_it_on():
    program = (
        "import torch, xlaprof.runtime as xr; from xlaprof.runtime import spmd as xs;"
        "print(xs.is_spmd(), xr.device_count(), xs.global_runtime_device_count(), torch.ones(2, device='xla').device)"
    )
    assert python("-c", program, CPU_NUM_DEVICES="3", XLA_USE_SPMD="1").stdout == "True 1 3 xla:0\n"
