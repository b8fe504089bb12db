"""``torch.compile(backend="openxla")``: the host's values, one program per graph, three executions per step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import xlaprof.runtime as xr
from runtime.counting import counted

#: Dynamo asks a tensor that is no leaf for its gradient, and imports torch.jit
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.torch.jit.script")


def compiled(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(f, backend="openxla", **options)


def test_inference_is_one_program_and_records_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()).eval()
    there = copy.deepcopy(model).to("xla")
    fast = compiled(there, fullgraph=True)
    batches = [torch.randn(3, 4) for _ in range(4)]
    sent = [batch.to("xla") for batch in batches]
    xr.sync()
    with torch.no_grad(), counted() as counts:
        results = [fast(batch) for batch in sent]
    assert (counts.compiles, counts.runs, counts["DynamoExtractCompiledGraph"]) == (1, 4, 1)
    assert (counts["RunCachedGraphInputData"], counts["RunCachedGraphOutputData"]) == (4, 4)
    with torch.no_grad():
        for batch, result in zip(batches, results, strict=True):
            torch.testing.assert_close(result.cpu(), model(batch))
    with torch.no_grad(), counted() as counts:
        fast(sent[0])
    assert not [name for name in counts if name.startswith("xla::") and counts[name]]


@pytest.mark.parametrize("inside", [True, False], ids=["optimizer compiled", "optimizer outside"])
def test_a_training_step_is_three_executions(inside: bool) -> None:
    here = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    there = copy.deepcopy(here).to("xla")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01) for m in (here, there)]

    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer: Any) -> torch.Tensor:
        optimizer.zero_grad(True)
        predicted = model(x)
        F.cross_entropy(predicted, y).backward()
        if inside:
            optimizer.step()
        return predicted

    fast = compiled(step)
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    sent = x.to("xla"), y.to("xla")
    xr.sync()
    runs = []
    for _ in range(5):
        expected = step(here, x, y, optimizers[0])
        with counted() as counts:
            predicted = fast(there, *sent, optimizers[1])
            if not inside:
                optimizers[1].step()
                xr.sync()
        if not inside:
            optimizers[0].step()
        runs.append(counts.runs)
        torch.testing.assert_close(predicted.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
    assert runs == [3] * 5
    assert counts.compiles == 0
    assert not counts["DynamoSyncInputExecuteTime"]
    for mine, yours in zip(there.state_dict().values(), here.state_dict().values(), strict=True):
        torch.testing.assert_close(mine.cpu(), yours, rtol=1e-4, atol=1e-5)


def test_what_is_overwritten_is_given_up_and_nobody_else_sees_it_change() -> None:
    @compiled
    def count(a: torch.Tensor) -> torch.Tensor:
        a += 1
        return a

    a = torch.tensor([0, 1, 2], device="xla")
    xr.sync()
    assert count(a) is a  # what was uploaded may be memory of numpy's, which XLA cannot be given
    before = a._storage.array.unsafe_buffer_pointer()
    count(a)
    assert a._storage.array.unsafe_buffer_pointer() == before
    other, pending, same = a.clone(), a * 10, a.detach()
    count(a)
    assert (other.tolist(), pending.tolist(), same.tolist()) == ([2, 3, 4], [20, 30, 40], [3, 4, 5])


def test_a_view_is_written_through() -> None:
    def double(v: torch.Tensor) -> torch.Tensor:
        v.mul_(2)
        return v.sum()

    base = torch.ones(3, 2)
    there = base.to("xla")
    assert compiled(double)(there[1]).item() == double(base[1]).item() == 4
    assert there.tolist() == base.tolist() == [[1, 1], [2, 2], [1, 1]]


def test_a_modules_buffers_are_kept() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = torch.zeros(2)  # no buffer to PyTorch: an attribute
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x)
            self.steps += 1
            return self.seen * self.steps

    model = Counter().to("xla")
    model.seen = model.seen.to("xla")
    fast = compiled(model)
    x = torch.tensor([1.0, 2.0], device="xla")
    assert [fast(x).tolist() for _ in range(3)] == [[1, 2], [4, 8], [9, 18]]
    assert (model.seen.tolist(), model.steps.item()) == ([3, 6], 3)


def test_results_of_any_kind() -> None:
    @torch.compile(backend="openxla", fullgraph=True)
    def f(given: dict[str, Any]) -> dict[str, Any]:
        a, (b,) = given["a"], given["b"]
        return {"view": a[1:], "none": None, "number": a.shape[0], "nested": (a.sum(), [b, b + 1, b + 1]), "same": a}

    a, b = torch.arange(6.0).reshape(3, 2).to("xla"), torch.ones(2, device="xla")
    result = f({"a": a, "b": [b]})
    assert result["same"] is a
    assert result["nested"][1][0] is b
    assert (result["none"], result["number"], result["nested"][0].item()) == (None, 3, 15)
    result["view"].zero_()  # of the argument itself
    assert a.tolist() == [[0, 1], [0, 0], [0, 0]]


def test_random_numbers_are_the_devices() -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5)

    fast = compiled(drop)
    x = torch.ones(200, device="xla")
    fast(x)  # compiling draws nothing
    torch.manual_seed(3)
    first, second = fast(x).tolist(), fast(x).tolist()
    assert first != second
    torch.manual_seed(3)
    assert drop(x).tolist() == first  # recorded or compiled, it is one stream
    torch.manual_seed(3)
    assert fast(x).tolist() == first


def test_inputs_that_are_pending_run_first_and_only_they() -> None:
    fast = compiled(lambda x: x * 3)
    x = torch.ones(2, device="xla")
    fast(x + 1)
    pending, other = x * 2.5, x * 7.5
    with counted() as counts:
        result = fast(pending)
    assert (counts.runs, counts["DynamoSyncInputExecuteTime"]) == (2, 1)
    assert result.tolist() == [7.5, 7.5]
    with counted() as counts:
        fast(pending)
    assert counts.runs == 1  # it is not pending any longer
    with counted() as counts:
        xr.sync()
    assert counts.runs == 1  # the other was
    assert other.tolist() == [7.5, 7.5]


def test_skip_input_data_check_refuses_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    from xlaprof.runtime.dynamo import config

    fast = compiled(lambda x: x.cos())
    x = torch.ones(2, device="xla")
    fast(x)
    monkeypatch.setattr(config, "skip_input_data_check", True)
    with pytest.raises(RuntimeError, match="input data to dynamo graph can not be a pending ir"):
        fast(x + 5)


def test_dynamic_shapes_are_traced_once_and_compiled_per_size() -> None:
    model = nn.Linear(3, 5)
    there = copy.deepcopy(model).to("xla")
    fast = compiled(there, dynamic=True)
    seen = []
    for size in (4, 6, 4, 6, 9):
        x = torch.randn(size, 3)
        sent = x.to("xla")
        with torch.no_grad(), counted() as counts:
            result = fast(sent)
        seen.append((counts["DynamoExtractCompiledGraph"], counts.compiles, counts.runs))
        torch.testing.assert_close(result.cpu(), model(x).detach())
    assert seen == [(1, 1, 1), (0, 1, 1), (0, 0, 1), (0, 0, 1), (0, 1, 1)]


def test_a_number_read_in_between_compiles_nothing_new() -> None:
    weight = torch.eye(2).to("xla")

    @compiled
    def scaled(x: torch.Tensor) -> torch.Tensor:
        x = x.relu()
        peak = x.max().item()
        return (x / peak) @ weight

    compiles = []
    for peak in (4.0, 5.5, 7.25, 8.5):
        x = torch.tensor([[1.0, peak]]).to("xla")
        with torch.no_grad(), counted() as counts:
            assert scaled(x).tolist()[0] == pytest.approx([1 / peak, 1.0])
        compiles.append(counts.compiles)
    assert compiles == [2, 0, 0, 0]


def test_retained_graphs_and_gradients_of_inputs() -> None:
    fast = compiled(lambda x: (x.sin() * x).sum())
    x = torch.randn(3)
    there = x.to("xla").requires_grad_()
    x.requires_grad_()
    for loss in ((x.sin() * x).sum(), fast(there)):
        loss.backward(retain_graph=True)
        loss.backward()
    torch.testing.assert_close(there.grad.cpu(), x.grad)


def test_autocast_and_inference_mode() -> None:
    fast = compiled(nn.Linear(4, 4).to("xla"))
    x = torch.ones(2, 4, device="xla")
    with torch.autocast("xla", dtype=torch.bfloat16):
        assert fast(x).dtype is torch.bfloat16
    with torch.inference_mode():
        assert fast(x).is_inference()
    assert fast(x).requires_grad


def test_without_autograd() -> None:
    fast = torch.compile(lambda x, y: (x + y, x.add_(1)), backend="openxla_eval")
    x, y = torch.ones(2, device="xla"), torch.ones(2, device="xla")
    total, same = fast(x, y)
    assert same is x
    assert (total.tolist(), x.tolist()) == ([2, 2], [2, 2])


def test_a_program_is_shared_with_the_lazy_mode() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 3.25).tanh() + 17.5

    x = torch.ones(5, device="xla")
    xr.sync()
    y = f(x)
    xr.sync()
    with counted() as counts:
        assert compiled(f)(x).tolist() == y.tolist()
    assert (counts.compiles, counts["CachedCompile"]) == (0, 1)


def test_options_are_refused() -> None:
    with pytest.raises(Exception, match="has no options"):
        torch.compile(lambda x: x + 1, backend="openxla", options={"fast": True})(torch.ones(2, device="xla"))


def test_debug_checks_are_compiled_in() -> None:
    fast = compiled(lambda table, i: table[i])
    table, index = torch.arange(3.0).to("xla"), torch.tensor([5]).to("xla")
    fast(table, index)  # clamped, as on every accelerator
    with xr.debug_checks(), pytest.raises(IndexError, match="index 5 is out of bounds"):
        fast(table, index).cpu()


def test_eager_mode_around_a_compiled_function() -> None:
    fast = compiled(lambda x: (x * 2).relu() - 0.5)
    with xr.eager_mode_context(True):
        x = torch.ones(4, device="xla") + 1
        fast(x)
        with counted() as counts:
            y = fast(x)
        assert (counts.runs, counts.compiles) == (1, 0)
        assert (y + 1).tolist() == [4.5] * 4
    assert fast(x).tolist() == [3.5] * 4
