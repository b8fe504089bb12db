"""The documents users start from, example by example (docs/documents.md is the table).

The code is the documents' own, up to sizes: small networks stand where they take torchvision's resnet18.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from runtime.counting import counted

import xlaprof.torch_xla

import torch_xla  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.debug.profiler as xp  # isort: skip
from torch_xla.distributed.parallel_loader import MpDeviceLoader  # isort: skip

# torch's own, where Dynamo imports it; and what the peer says too of inputs on the host
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute", "ignore:.torch.jit.script", "ignore:Found tensor with shape"
)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)) + x)


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), Block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


@pytest.fixture
def eager() -> Iterator[None]:
    torch_xla.experimental.eager_mode(True)
    yield
    torch_xla.experimental.eager_mode(False)


# -- Eager mode + the compile API ----------------------------------------------------------------------------


def test_lazy_tracing_runs_at_sync() -> None:
    device = torch_xla.device()
    model = resnet().to(device)
    input = torch.randn(2, 3, 8, 8).to(device)
    torch_xla.sync()
    with counted() as tracing:
        res = model(input)
    with counted() as executing:
        torch_xla.sync()
    assert (tracing.runs, executing.runs, executing.compiles) == (0, 1, 1)
    assert res.shape == (2, 5)


def test_eager_mode_runs_each_operation_and_compile_one_graph(eager: None) -> None:
    device = torch_xla.device()
    model = resnet().to(device).eval()
    compiled_model = torch_xla.compile(model)
    input = torch.randn(2, 3, 8, 8).to(device)
    with counted() as one_by_one:
        expected = model(input)
    with counted() as together:
        res = compiled_model(input)
    with counted() as again:
        compiled_model(input)
    torch.testing.assert_close(res.cpu(), expected.cpu())
    assert one_by_one["EagerOpExecuteTime"] > 5
    assert (together.compiles, together.runs) == (1, 1)
    assert (again.compiles, again.runs) == (0, 1)
    assert torch_xla.experimental.is_eager_mode()


def test_eager_mode_with_torch_compile_for_inference(eager: None) -> None:
    model = resnet().to("xla").eval()
    compiled_model = torch.compile(model, backend="openxla")
    input = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled_model(input.to("xla")).cpu(), model(input.to("xla")).cpu())


def step_fn(model, data, target, loss_fn, optimizer):
    optimizer.zero_grad()
    logits = model(data)
    loss = loss_fn(logits, target)
    loss.backward()
    optimizer.step()
    return loss


def trained(step, device: str) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data, target = torch.randn(6, 4).to(device), torch.arange(6).remainder(3).to(device)
    return [step(model, data, target, nn.CrossEntropyLoss(), optimizer).item() for _ in range(3)]


def test_a_training_step_as_one_graph(eager: None) -> None:
    with counted() as counts:
        losses = trained(torch_xla.compile(step_fn), "xla")
    assert losses == pytest.approx(trained(step_fn, "cpu"), rel=1e-5)
    assert counts.runs == 3
    assert counts.compiles <= 2


# -- TorchDynamo ---------------------------------------------------------------------------------------------


def test_a_function_that_moves_its_inputs() -> None:
    def add(a, b):
        a_xla = a.to(xm.xla_device())
        b_xla = b.to(xm.xla_device())
        return a_xla + b_xla

    compiled_code = torch.compile(add, backend="openxla")
    a, b = torch.randn(10), torch.randn(10)
    result = compiled_code(a, b)
    assert result.device.type == "xla"
    torch.testing.assert_close(result.cpu(), a + b)


def test_inference_is_traced_once() -> None:
    device = xm.xla_device()
    xla_resnet18 = resnet().to(device)
    xla_resnet18.eval()
    dynamo_resnet18 = torch.compile(xla_resnet18, backend="openxla")
    loader = [torch.randn(2, 3, 8, 8).to(device) for _ in range(4)]
    with torch.no_grad():
        dynamo_resnet18(loader[0])
        with counted() as counts:
            outputs = [dynamo_resnet18(data) for data in loader[1:]]
        torch.testing.assert_close(outputs[0].cpu(), xla_resnet18(loader[1]).cpu())
    assert (counts.compiles, counts.runs) == (0, 3)


def test_training_is_three_graphs_per_step() -> None:
    device = xm.xla_device()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)

    def train_model(model, data, target, optimizer):
        loss_fn = torch.nn.CrossEntropyLoss()
        pred = model(data)
        loss = loss_fn(pred, target)
        loss.backward()
        optimizer.step()
        return pred

    dynamo_train_model = torch.compile(train_model, backend="openxla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-2)
    data, target = torch.randn(6, 4).to(device), torch.arange(6).remainder(3).to(device)
    for _ in range(3):
        optimizer.zero_grad()
        dynamo_train_model(model, data, target, optimizer)
        torch_xla.sync()
    with counted() as counts:
        optimizer.zero_grad()
        dynamo_train_model(model, data, target, optimizer)
        torch_xla.sync()
    assert (counts.compiles, counts.runs) == (0, 3)  # forward, backward, optimizer


# -- The overview --------------------------------------------------------------------------------------------


def test_a_loop_without_a_barrier_is_one_graph_and_with_it_a_small_one_that_is_used_again() -> None:
    device = xm.xla_device()
    tensors_on_device = [(torch.randn(3, device=device), torch.randn(3, device=device)) for _ in range(3)]
    z = torch.zeros(3, device=device)
    torch_xla.sync()
    with counted() as whole:
        for x, y in tensors_on_device:
            z += x + y
        xm.mark_step()
    with counted() as small:
        for x, y in tensors_on_device:
            z += x + y
            xm.mark_step()
    assert (whole.compiles, whole.runs) == (1, 1)
    assert (small.compiles, small.runs) == (1, 3)


def test_print_runs_what_it_needs_and_does_not_cut_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(2, device=xm.xla_device()) * 3
    other = x.exp()
    xla_tensor_z = x + 1
    with counted() as counts:
        print(xla_tensor_z)
    assert "4., 4." in capsys.readouterr().out
    assert (counts.runs, counts.reads, counts["MarkStep"]) == (1, 1, 0)
    assert "XLAData: None" in torch_xla._XLAC._get_xla_tensor_debug_info(other)


def test_mark_step_does_not_wait_for_the_device() -> None:
    x = torch.ones(2, device=xm.xla_device())
    y = x * 2
    xm.mark_step()
    z = y + 1  # traced while y may still be computed
    xm.wait_device_ops()
    assert z.tolist() == [3.0, 3.0]


def test_another_shape_is_another_graph_and_padding_keeps_one() -> None:
    def run(sizes, pad):
        with counted() as counts:
            for size in sizes:
                x = torch.ones(size)
                if pad:
                    x = torch.nn.functional.pad(x, (0, 16 - size))
                (x.to("xla") * 7).sum()
                x = x.to("xla").cumsum(0)
                torch_xla.sync()
        return counts.compiles

    assert run((9, 10, 11), pad=False) == 3
    assert run((9, 10, 11), pad=True) == 1


def test_the_device_loader_brings_the_barrier_or_optimizer_step_does() -> None:
    device = xm.xla_device()
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.ones(4, 2) * i for i in range(3)]

    def step(data):
        optimizer.zero_grad()
        model(data).sum().backward()

    torch_xla.sync()
    with counted() as with_loader:
        for data in MpDeviceLoader(batches, device):
            step(data)
            xm.optimizer_step(optimizer)
    with counted() as with_barrier:
        for data in batches:
            step(data.to(device))
            xm.optimizer_step(optimizer, barrier=True)
    assert with_loader.runs == with_barrier.runs == 3


def test_cuda_becomes_xla() -> None:
    class Embedder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.device = xm.xla_device()
            self.weight = nn.Parameter(torch.ones(2))

    embedder = Embedder()
    embedder.to(embedder.device)  # as pipe.to(device)
    attr = torch.ones(2)
    device = xm.xla_device()
    attr = attr.to(torch.device(device))
    assert str(attr.device) == str(embedder.weight.device) == "xla:0"


def test_a_trace_may_not_go_around_a_barrier() -> None:
    x = torch.ones(2, device="xla")
    with xp.Trace("unet"):
        y = x * 2
    with pytest.raises(RuntimeError, match="Expecting scope to be empty but it is unet"), xp.Trace("unet"):
        xm.mark_step()
    xm.mark_step()
    assert y.tolist() == [2.0, 2.0]


def test_launch_for_debugging_is_this_process() -> None:
    seen = []

    def my_function(index, offset):
        seen.append((index, offset, os.getpid()))

    torch_xla.launch(my_function, args=(5,), debug_single_process=True)
    assert seen == [(0, 5, os.getpid())]


@pytest.mark.slow
def test_launch_starts_a_process_per_device(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import torch_xla
        import torch_xla.runtime as xr

        def my_function(index, base):
            print(f"{index} of {xr.world_size()}, {base}\\n", end="", flush=True)

        if __name__ == "__main__":
            torch_xla.launch(my_function, args=(7,))
        """)
    )
    done = subprocess.run(
        [sys.executable, "-m", "xlaprof", "run", "--no-report", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "CPU_NUM_DEVICES": "2", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert sorted(done.stdout.splitlines()) == ["0 of 2, 7", "1 of 2, 7"], done.stderr
    assert {path.name for path in tmp_path.glob("run.*")} == {"run.log", "run.rank0.log", "run.rank1.log"}


def test_the_table_names_every_test_here() -> None:
    page = (Path(__file__).parents[2] / "docs" / "documents.md").read_text()
    missing = [name for name in globals() if name.startswith("test_") and name not in page]
    assert missing == ["test_the_table_names_every_test_here"]


assert xlaprof.torch_xla
