"""The bridge under PyTorch/XLA's names: graphs extracted by hand, hashed, run again; buffers given up by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import fx, nn

import xlaprof.runtime as xr
from runtime.counting import counted
from xlaprof.runtime import dynamo
from xlaprof.runtime.dynamo import donation
from xlaprof.runtime.dynamo.bridge import extract_compiled_graph
from xlaprof.runtime.dynamo.xlac import GraphInputMatcher, NoneRemover
from xlaprof.torch_xla import _XLAC as xlac


class Updated(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a.sub_(b)
        return b - 1, b + 1


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.linear(x) @ self.linear(y).t()


@pytest.mark.parametrize("kind", [Updated, Projected])
def test_a_symbolic_trace_is_extracted_with_its_module(kind: type[nn.Module]) -> None:
    module = kind().to("xla")

    def inputs() -> list[torch.Tensor]:
        return [torch.randn(2, 10).to("xla") for _ in range(2)]

    run = extract_compiled_graph(fx.symbolic_trace(module), inputs())
    for _ in range(3):
        args = inputs()
        copies = copy.deepcopy(args)
        expected = module(*args)
        xr.sync()
        with counted() as counts:
            results = run(*copies)
        assert counts.runs == 1
        for mine, yours in zip((*results, *copies), (*expected, *args), strict=True):
            torch.testing.assert_close(mine.cpu(), yours.cpu())


def test_a_pending_graph_is_hashed_and_run_on_other_inputs() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to("xla")
    x = torch.randn(2, 4).to("xla")
    xr.sync()
    result = model(x)
    key = xlac._get_graph_hash([result])
    assert key == xlac._get_graph_hash([result])
    ids, inputs = xlac._get_tensors_xla_device_data_node([result])
    assert len(ids) == 5
    assert sorted(xlac._get_tensors_handle([x, *model.parameters()])) == sorted(xlac._get_tensors_handle(inputs))
    places = {id(x._storage): 0}
    matcher = GraphInputMatcher(places, ids, inputs, set(places))
    assert matcher.graph_input_xla_values.count(None) == 1
    other = torch.randn(2, 4).to("xla")
    (again,) = xlac._run_cached_graph(key, matcher([other]))
    torch.testing.assert_close(again.cpu(), model(other).detach().cpu())
    (sent,) = xlac._run_cached_graph(key, [t.detach().cpu() for t in matcher([other])])
    torch.testing.assert_close(sent.cpu(), again.cpu())
    with pytest.raises(RuntimeError, match="Failed to get computation by hash"):
        xlac._run_cached_graph(b"unknown", [])
    result += 1
    assert key != xlac._get_graph_hash([result])


def test_inputs_that_are_returned_are_no_outputs_of_a_graph() -> None:
    a, b = torch.ones(2, device="xla") * 1, torch.ones(2).to("xla")
    xr.sync()
    key = xlac._get_graph_hash([a + b, b])
    _, inputs = xlac._get_tensors_xla_device_data_node([a + b, b])
    assert len(xlac._run_cached_graph(key, inputs)) == 1


def test_none_is_removed_and_put_back() -> None:
    remover = NoneRemover()
    given: list[object] = ["a", None, "b", None]
    assert remover.remove_nones(given) == ["a", "b"] == given
    assert remover.none_poslist == [1, 3]
    assert remover.add_nones(("x", "y")) == ("x", None, "y", None)


def test_a_marked_buffer_is_given_up_and_says_so() -> None:
    fast = torch.compile(lambda x: x + 1, backend="openxla")
    x, kept = torch.ones(3).to("xla"), torch.ones(3).to("xla")
    assert dynamo.set_buffer_donation(x, True)
    assert fast(x).tolist() == [2, 2, 2]
    assert dynamo.get_buffer_donation(x)
    with pytest.raises(RuntimeError, match="its buffer was donated to a compiled graph"):
        x.cpu()
    assert not dynamo.set_buffer_donation(kept * 2, True)  # pending: there is no buffer
    assert kept.tolist() == [1, 1, 1]


def test_the_mark_is_part_of_a_hash_where_that_is_asked_for() -> None:
    x = torch.ones(3).to("xla")
    y = x.cos()
    plain = xlac._get_graph_hash([y])
    dynamo.set_buffer_donation(x, True)
    assert xlac._get_graph_hash([y]) == plain
    with dynamo.alias_with_buffer_donor_config() as before:
        assert before is False
        assert xlac._get_graph_hash([y]) != plain
    dynamo.set_buffer_donation(x, False)
    assert not dynamo.get_buffer_donation(x)


def test_a_graph_marks_its_own_inputs() -> None:
    donation.define_operators()

    @torch.compile(backend="openxla")
    def f(x: torch.Tensor) -> torch.Tensor:
        torch.ops.xla.dynamo_set_buffer_donor_(x, True)
        return x * 1.5

    for _ in range(2):
        x = torch.ones(3).to("xla")
        assert f(x).tolist() == [1.5, 1.5, 1.5]
        assert donation.is_deleted(x)


def test_a_marked_buffer_is_given_up_at_the_next_barrier_that_takes_it() -> None:
    x, other = torch.zeros(3, device="xla") + 1, torch.ones(3).to("xla")  # an upload may be in the host's memory
    xr.sync(wait=True)
    assert dynamo.set_buffer_donation(x, True)
    xr.sync()  # runs nothing: the mark stays
    assert dynamo.get_buffer_donation(x)
    memory = x._storage.array.unsafe_buffer_pointer()
    y = x + other
    other += 2
    xr.sync(wait=True)
    assert y.tolist() == [2, 2, 2]
    assert other.tolist() == [3, 3, 3]
    assert y._storage.array.unsafe_buffer_pointer() == memory
    with pytest.raises(RuntimeError, match="its buffer was donated to a compiled graph"):
        x.cpu()


def test_without_the_mark_the_same_graph_keeps_its_input() -> None:
    for marked in (True, False):
        x = torch.full((3,), 2.0).to("xla")
        xr.sync(wait=True)
        dynamo.set_buffer_donation(x, marked)
        y = x * 5
        xr.sync()
        assert y.tolist() == [10, 10, 10]
    assert x.tolist() == [2, 2, 2]


def test_a_marked_buffer_that_another_tensor_has_too_stays_with_that_one() -> None:
    x = torch.ones(3).to("xla")
    xr.sync(wait=True)
    twin = x.clone()
    xr.sync(wait=True)
    dynamo.set_buffer_donation(x, True)
    y = x + twin
    xr.sync()
    assert y.tolist() == [2, 2, 2]
    assert twin.tolist() == [1, 1, 1]
