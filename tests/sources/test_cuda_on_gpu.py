"""The watch of a GPU, on a GPU: it disturbs no capture, no error and no fork, and tells what PyTorch's profiler tells.

What it said of the programs in ``cuda_programs`` on a GPU is kept; ``test_cuda_recordings.py`` reads that anywhere.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import xlaprof
from xlaprof.events import Device, Execute, Source

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU here: nothing was tried on one (docs/torch-cuda.md)"
)


def chain(x: torch.Tensor, times: int = 300) -> torch.Tensor:
    y = x
    for _ in range(times):
        y = torch.tanh(y @ x)
        time.sleep(0.0003)  # so that the device is asked many times meanwhile
    return y


def watched(x: torch.Tensor) -> None:
    """Work until the device is watched."""
    for _ in range(200):
        chain(x, 100)
        if any(thread.name.startswith("xlaprof cuda poller") for thread in threading.enumerate()):
            return
    pytest.fail("the device is not watched")


def captured(path: Path, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A chain of products, captured while a recording is on, replayed; and the same without a graph."""
    x = torch.randn(512, 512, device="cuda") / 16
    chain(x, 3)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with xlaprof.record(path, detail="full"):
        watched(x)
        with torch.cuda.graph(graph, stream=stream):
            got = chain(x)
        graph.replay()
        torch.cuda.synchronize()
    assert "torch.cuda" in [one.name for one in xlaprof.read(path) if isinstance(one, Source)]
    return got, chain(x)


def test_a_capture_goes_on_while_the_device_is_asked(tmp_path: Path) -> None:
    got, want = captured(tmp_path / "run.log", torch.cuda.Stream())
    assert torch.equal(got, want)


def test_so_does_one_on_a_stream_that_waits_for_the_default_one(tmp_path: Path) -> None:
    """A query of the default stream would end the capture, in whatever mode it is asked."""
    files = re.findall(r"/\S*/libcudart\S*\.so\S*", Path("/proc/self/maps").read_text())
    handle = ctypes.c_void_p()
    assert ctypes.CDLL(files[0]).cudaStreamCreate(ctypes.byref(handle)) == 0
    got, want = captured(tmp_path / "run.log", torch.cuda.ExternalStream(handle.value))
    assert torch.equal(got, want)


def test_reduce_overhead_computes_the_same(tmp_path: Path) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda()
    step = torch.compile(model, mode="reduce-overhead")
    inputs = [torch.randn(n, 256, device="cuda") for n in (8, 16, 8, 16, 8, 16, 8, 16)]
    with torch.no_grad(), xlaprof.record(tmp_path / "run.log"):
        got = [step(x).clone() for x in inputs]
        watched(torch.randn(512, 512, device="cuda") / 16)
        got += [step(x).clone() for x in inputs * 20]  # replayed while the device is asked
    for x, y in zip(inputs * 21, got, strict=True):
        torch.testing.assert_close(y, model(x))


def test_the_device_is_named_and_busy(tmp_path: Path) -> None:
    x = torch.randn(4096, 4096, device="cuda")
    x @ x
    with xlaprof.record(tmp_path / "run.log", detail="full"):
        time.sleep(0.5)  # until it is watched
        begin = time.perf_counter_ns()
        for _ in range(100):
            x @ x
        torch.cuda.synchronize()
        end = time.perf_counter_ns()
    events = list(xlaprof.read(tmp_path / "run.log"))
    assert [one.kind for one in events if isinstance(one, Device)] == [torch.cuda.get_device_name()]
    busy = sum(min(one.end, end) - max(one.start, begin) for one in events if isinstance(one, Execute))
    assert 0.9 < busy / (end - begin) < 1.02


def run(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(program)
    command = [sys.executable, "-m", "xlaprof", "run", "-o", str(tmp_path / "run.log"), str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)


def test_an_error_of_the_device_ends_the_watch_and_is_the_programs(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import time, torch\n"
        "x = torch.zeros(10, device='cuda')\n"
        "time.sleep(0.5)\n"
        "x[torch.tensor([10**6], device='cuda')]\n"
        "time.sleep(0.5)\n"
        "torch.cuda.synchronize()\n",
    )
    assert done.returncode == 1
    assert "device-side assert" in done.stderr.splitlines()[-1] or "device-side assert" in done.stderr
    said = [line for line in done.stderr.splitlines() if "is not watched" in line]
    assert said == ["xlaprof: the GPU is not watched any more: cudaErrorAssert"]


def test_a_fork_and_workers_that_fork_go_on(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import os, sys, torch\n"
        "from torch.utils.data import DataLoader\n"
        "x = torch.randn(2048, 2048, device='cuda')\n"
        "for turn in range(20):\n"
        "    for _ in range(20):\n"
        "        x @ x\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        sys.exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "rows = sum(batch.cuda().sum().item() for batch in DataLoader(list(range(64)), num_workers=4))\n"
        "assert rows == sum(range(64))\n"
        "print('done')\n",
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr
    assert any(isinstance(one, Execute) for one in xlaprof.read(tmp_path / "run.log"))


def test_a_program_that_has_a_gpu_and_does_not_use_it_is_left_alone(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import threading, torch\n"
        "torch.ones(3).sum()\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert not [one.name for one in threading.enumerate() if 'cuda' in one.name]\n",
    )
    assert done.returncode == 0, done.stderr
    assert not any(isinstance(one, Device | Execute) for one in xlaprof.read(tmp_path / "run.log"))


def test_ddp_with_nccl_is_recorded(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import os, torch\n"
        "import torch.distributed as dist\n"
        "os.environ |= dict(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT='0')\n"
        "dist.init_process_group('nccl', device_id=torch.device('cuda', 0))\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())\n"
        "x = torch.randn(4096, 1024, device='cuda')\n"
        "for _ in range(100):\n"
        "    model(x).square().mean().backward()\n"
        "torch.cuda.synchronize()\n"
        "dist.destroy_process_group()\n"
        "print('done')\n",
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr
    assert "is not watched" not in done.stderr
    assert any(isinstance(one, Execute) for one in xlaprof.read(tmp_path / "run.log"))


def test_no_compiler_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))
    done = run(tmp_path, "import time, torch\ntorch.ones(3, device='cuda').sum().item()\ntime.sleep(0.5)\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the GPU is not watched") == 1
    assert os.fspath(tmp_path / "no-such-compiler") in done.stderr
