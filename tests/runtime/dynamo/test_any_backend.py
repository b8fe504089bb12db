"""Dynamo takes tensors on xla for PyTorch's own, whichever backend it compiles for, and leaves our frames alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import processes
import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

import xlaprof.runtime as xr

#: Dynamo asks a tensor that is no leaf for its gradient, and imports torch.jit
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.torch.jit.script")

BACKENDS = ["eager", "aot_eager", "openxla"]


def twins() -> tuple[nn.Module, nn.Module]:
    here = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    return here, copy.deepcopy(here).to("xla")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_training_step_is_the_hosts(backend: str) -> None:
    here, there = twins()
    counters.clear()

    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # Dynamo breaks its graph here, and looks at every frame that starts
        return loss

    compiled = torch.compile(step, backend=backend)
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    for _ in range(2):
        expected, loss = step(here, x, y), compiled(there, x.to("xla"), y.to("xla"))
        torch.testing.assert_close(loss.cpu(), expected, rtol=1e-4, atol=1e-5)
    for mine, yours in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), yours.grad, rtol=1e-4, atol=1e-5)
    for mine, yours in zip(there.buffers(), here.buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), yours)
    assert counters["frames"]["total"] <= 3  # the step and what resumes after its break: nothing of the runtime's


def test_a_backend_is_given_the_users_operations_and_fake_tensors_on_xla() -> None:
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.extend(node for node in graph.graph.nodes if node.op != "output")
        return graph.forward

    @torch.compile(backend=backend, fullgraph=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cos() + 1

    f(torch.ones(3, device="xla"))
    assert [node.target for node in seen if node.op == "call_method"] == ["cos"]
    assert seen[0].meta["example_value"].device == torch.device("xla", 0)
    assert len(seen) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_breaks_a_graph_is_done_in_between(backend: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        positive = y[y > 0]  # as many as there are
        z = torch.zeros(3, device=y.device) + positive.sum()
        if z.sum().item() > 0:
            z = z - 1
        return z

    x = torch.tensor([1.0, -2.0, 3.0])
    torch.testing.assert_close(torch.compile(f, backend=backend)(x.to("xla")).cpu(), f(x))
    y = x.to("xla") + 1  # and the runtime goes on as before
    xr.sync()
    assert y.tolist() == [2.0, -1.0, 4.0]


def test_the_runtimes_own_functions_break_a_graph_and_work() -> None:
    @torch.compile(backend="openxla")
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        xr.sync()
        return y * 2

    assert f(torch.ones(2, device="xla")).tolist() == [4.0, 4.0]
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda x: (xr.sync(), x)[1], backend="openxla", fullgraph=True)(torch.ones(2, device="xla"))


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_an_optimizers_step_is_cut_where_pytorch_cuts_it_and_nowhere_by_us(device: str) -> None:
    torch._dynamo.reset()  # what Dynamo knows of us stays
    moved = nn.Linear(4, 4)
    replaced = list(moved.parameters())
    moved.to("xla")  # a hook before all steps once followed the modules that moved: it cut each step
    model = nn.Linear(4, 4).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(2, 4, device=device)).sum().backward()
    before = model.weight.detach().clone()
    counters.clear()
    torch.compile(optimizer.step, backend="eager")()
    assert counters["stats"]["unique_graphs"] == 1
    assert not [reason for reason in counters["graph_break"] if "xlaprof" in reason]
    torch.testing.assert_close(model.weight, before - 0.1)  # Adam's first step is the learning rate
    assert replaced
    xr.sync()


def test_both_backends_are_registered_and_found_by_entry_point() -> None:
    from importlib.metadata import entry_points

    from xlaprof.runtime import dynamo

    listed = torch._dynamo.list_backends(exclude_tags=())
    assert {"openxla", "openxla_eval"} <= set(listed)
    assert torch._dynamo.lookup_backend("openxla") is dynamo.openxla
    points = {point.name: point for point in entry_points(group="torch_dynamo_backends")}
    assert points["openxla"].load() is dynamo.openxla
    assert points["openxla_eval"].load() is dynamo.openxla_eval


def test_a_barrier_in_a_compiled_function_compiles_what_is_pending(tmp_path: Path) -> None:
    """Dynamo looked at jax's frames in the meantime, set the default dtype, and waited for the tape that was locked."""
    (tmp_path / "train.py").write_text(
        """
import torch, xlaprof.runtime as xr
pending = torch.ones(3, device="xla") * 2

def function(x):
    y = x.sin()
    xr.sync()
    return y.cos()

fast = torch.compile(function, backend="eager")
x = torch.randn(4)
for _ in range(2):
    torch.testing.assert_close(fast(x), x.sin().cos())
print(pending.tolist())
"""
    )
    done = processes.run("train.py", cwd=tmp_path)
    assert done.stdout == "[2.0, 2.0, 2.0]\n", done.stderr
