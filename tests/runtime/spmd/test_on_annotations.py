"""Annotated tensors: how they lie, what they keep, what their shards are."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.tensor import Partial, Replicate, Shard

import xlaprof
import xlaprof.runtime as xr
from runtime.counting import counted
from xlaprof import events, log
from xlaprof.analysis.diagnosis import cause
from xlaprof.runtime import spmd as xs
from xlaprof.runtime.spmd.sharding import REPLICATED
from xlaprof.torch_xla import _XLAC as xlac

ROW = xs.get_1d_mesh("x")
GRID = xs.Mesh(range(4), (2, 2), ("a", "b"))
BY_ROWS = "{devices=[4,1]0,1,2,3}"


def on_device(shape: tuple[int, ...] = (8, 8)) -> tuple[torch.Tensor, torch.Tensor]:
    """A host tensor and its copy on xla."""
    value = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    return value, value.to("xla")


def test_a_value_waits_on_the_host_until_it_is_known_how_it_lies():
    with counted() as before:
        _, x = on_device()
    assert xs.get_sharding_spec(x) == ""
    assert before["TransferToDeviceTime"] == 0
    with counted() as marked:
        xs.mark_sharding(x, ROW, ("x", None))
    assert marked["TransferToDeviceTime"] == 1
    assert xs.get_sharding_spec(x) == BY_ROWS
    assert {shard.data.shape for shard in x._storage.array.addressable_shards} == {(2, 8)}


def test_the_host_s_tensor_may_change_meanwhile():
    value, x = on_device()
    value.zero_()
    assert x.sum().item() == sum(range(64))


@pytest.mark.parametrize(
    ("mesh", "spec", "shapes", "replicas"),
    [
        (ROW, ("x", None), (2, 6), [0, 0, 0, 0]),
        (GRID, (None, "b"), (8, 3), [0, 0, 1, 1]),
        (GRID, ("b", "a"), (4, 3), [0, 0, 0, 0]),
        (ROW, (None, "x"), (8, 2), [0, 0, 0, 0]),  # six columns over four devices: filled up to eight
        (GRID, (None, None), (8, 6), [0, 1, 2, 3]),
    ],
)
def test_shards(mesh, spec, shapes, replicas):
    value, x = on_device((8, 6))
    shards = xs.mark_sharding(x, mesh, spec).local_shards
    assert [shard.replica_id for shard in shards] == replicas
    assert [shard.shard_device for shard in shards] == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    covered = torch.zeros(8, 6)
    for shard in shards:
        assert tuple(shard.data.shape) == shapes
        at = ... if shard.indices is ... else tuple(shard.indices)
        assert torch.equal(shard.unpadded_data, value[at])
        assert shard.data.sum() == shard.unpadded_data.sum()  # filled up with zeros
        covered[at] = 1
    assert covered.all()


def test_what_no_tile_divides_computes_as_any():
    value, x = on_device((5, 3))
    xs.mark_sharding(x, ROW, ("x", None))
    assert torch.equal((x @ x.t()).cpu(), value @ value.t())
    x += 1
    xr.sync()
    assert torch.equal(x.cpu(), value + 1)
    assert x.mean().item() == (value + 1).mean().item()
    assert xs.get_sharding_spec(x) == BY_ROWS
    assert torch.equal(torch.from_numpy(np.array(xr.to_jax(x))), value + 1)


def test_in_place_and_copies_keep_it():
    _, x = on_device()
    xs.mark_sharding(x, ROW, ("x", None))
    x.add_(1)
    assert xs.get_sharding_spec(x) == BY_ROWS
    assert xs.get_sharding_spec(x.clone()) == BY_ROWS
    assert xs.get_sharding_spec(copy.deepcopy(x)) == BY_ROWS
    with counted() as counts:
        xr.sync()
    assert counts["ExecuteReplicatedTime"] == counts["ExecuteReplicated"] == counts.runs == 1
    assert xs.get_sharding_spec(x) == BY_ROWS
    assert len({shard.data.unsafe_buffer_pointer() for shard in x._storage.array.addressable_shards}) == 4


def test_copies_of_modules_keep_it():
    layer = nn.Linear(7, 5).to("xla")  # five rows over four devices
    xs.mark_sharding(layer.weight, ROW, ("x", None))
    copied = copy.deepcopy(layer)
    xr.sync()
    assert xs.get_sharding_spec(copied.weight) == BY_ROWS
    assert torch.equal(copied.weight.detach().cpu(), layer.weight.detach().cpu())


def test_an_overwritten_value_gives_up_its_shards():
    _, x = on_device()
    xs.mark_sharding(x, ROW, ("x", None))
    x += 1
    xr.sync()  # now the memory is XLA's own
    before = [shard.data.unsafe_buffer_pointer() for shard in x._storage.array.addressable_shards]
    x += 1
    xr.sync(wait=True)
    assert [shard.data.unsafe_buffer_pointer() for shard in x._storage.array.addressable_shards] == before


def test_a_recorded_value_is_constrained():
    value, x = on_device()
    y = xs.mark_sharding(x + x, GRID, ("a", None))
    assert isinstance(y, xs.XLAShardedTensor)
    assert y.sharding_type is xs.ShardingType.PARTIAL
    xr.sync()
    assert y.sharding_spec == "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"
    assert torch.equal(y.cpu(), value + value)
    values, indices = torch.max(x, 1)
    xs.mark_sharding(values, ROW, ("x",))
    assert xs.get_sharding_spec(values) != ""
    assert xs.get_sharding_spec(indices) == ""


def test_xla_says_how_the_rest_lies():
    _, x = on_device()
    xs.mark_sharding(x, ROW, ("x", None))
    product, total = x * 2, x.sum()
    assert xs.get_sharding_spec(product) == ""
    xr.sync()
    assert xs.get_sharding_spec(product) == BY_ROWS
    assert xs.get_sharding_spec(total) == "{replicated}"
    assert xs.wrap_if_sharded(product).sharding_type is xs.ShardingType.TILED


def test_what_is_recorded_reads_the_value_from_before():
    value, x = on_device()
    y = x * 5
    xs.mark_sharding(x, ROW, (None, "x"))
    xr.sync()
    assert torch.equal(y.cpu(), value * 5)


def test_an_annotation_is_changed_by_taking_it_away_first():
    _, x = on_device()
    xs.mark_sharding(x, GRID, (None, None))
    xs.mark_sharding(x, ROW, ("x", None))  # over a replicated one
    xs.mark_sharding(x, ROW, ("x", None))
    with pytest.raises(RuntimeError, match=r"Existing annotation must be cleared first.*call clear_sharding\(tensor\)"):
        xs.mark_sharding(x, ROW, (None, "x"))
    assert xs.clear_sharding(x) is x
    assert xs.get_sharding_spec(x) == ""
    assert xs.mark_sharding(x, ROW, (None, "x")).sharding_spec == "{devices=[1,4]0,1,2,3}"


def test_numbers_are_replicated():
    number = torch.tensor(2.5).to("xla")
    marked = xs.mark_sharding(number, ROW, ())
    assert marked == number
    assert (marked.sharding_spec, marked.sharding_type) == ("{replicated}", xs.ShardingType.REPLICATED)
    assert [shard.replica_id for shard in marked.local_shards] == [0, 1, 2, 3]
    assert (marked.mesh_shape, marked.partition_spec, marked.placements) == ((4,), (), (Replicate(),))


def test_a_tensor_elsewhere_is_refused():
    with pytest.raises(RuntimeError, match="mark_sharding wants a tensor on xla, not one on cpu"):
        xs.mark_sharding(torch.ones(4), ROW, ("x",))


def test_what_is_computed_with_a_wrapped_tensor_is_wrapped():
    value, x = on_device()
    wrapped = xs.mark_sharding(x, ROW, ("x", None))
    layer = nn.Linear(8, 2).to("xla")
    assert isinstance(layer(wrapped), xs.XLAShardedTensor)
    assert not isinstance(layer(x), xs.XLAShardedTensor)
    assert str(wrapped + 1).startswith("XLAShardedTensor(tensor(")
    wrapped += 1
    assert torch.equal(x.cpu(), value + 1)
    assert wrapped.tolist() == (value + 1).tolist()
    target = torch.zeros(8, 8, device="xla")
    target.copy_(wrapped)
    assert torch.equal(target.cpu(), value + 1)


def test_loading_shards():
    value, x = on_device((4, 2))
    wrapped = xs.mark_sharding(x, ROW, ("x", None))
    shards = wrapped.local_shards
    for shard in shards:
        shard.unpadded_data = -shard.data
    wrapped.load_local_shards_(shards)
    assert torch.equal(wrapped.cpu(), -value)
    assert wrapped.sharding_spec == BY_ROWS
    with pytest.raises(RuntimeError, match="expected one shard for each of 4 local devices, got 3"):
        wrapped.load_local_shards_(shards[:-1])
    shards[0].data = torch.ones(3, 3)
    with pytest.raises(RuntimeError, match=r"its shards are of shape \[1, 2\], not \[3, 3\]"):
        wrapped.load_local_shards_(shards)
    whole = xs.mark_sharding(torch.ones(4).to("xla"), ROW, (None,))
    with pytest.raises(RuntimeError, match=r"Cannot load local shards into a non sharded tensor: it is \{replicated\}"):
        whole.load_local_shards_(whole.local_shards)


def test_a_tensor_of_shards():
    make, by_rows = xlac._global_tensor_from_cpu_shards, ROW.get_op_sharding(("x",))
    parts = [torch.arange(4) + 4 * i for i in range(4)]
    for missing in range(4):  # the last tile may be padded
        whole = make(parts, by_rows, (16 - missing,))
        assert torch.equal(whole.cpu(), torch.arange(16 - missing))
        assert xs.get_sharding_spec(whole) == "{devices=[4]0,1,2,3}"
    for shape in ((17,), (12,), (4, 4)):
        with pytest.raises(RuntimeError):
            make(parts, by_rows, shape)
    columns = [torch.tensor([[i % 2]]) for i in range(4)]
    assert make(columns, GRID.get_op_sharding((None, "b"))).tolist() == [[0, 1]]
    assert make([torch.arange(4)] * 4, REPLICATED).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="expected one shard for each of 4 local devices, got 2"):
        make(parts[:2], by_rows)


def test_the_same_random_numbers_however_they_lie():
    torch.manual_seed(7)
    plain = torch.randn(8, 8, device="xla").cpu()
    torch.manual_seed(7)
    sharded = torch.randn(8, 8, device="xla")
    xs.mark_sharding(sharded, GRID, ("a", "b"))
    assert torch.equal(sharded.cpu(), plain)


def test_a_changed_sharding_explains_the_recompilation(tmp_path):
    _, x = on_device((12, 4))
    _, y = on_device((12, 4))
    xs.mark_sharding(x, ROW, ("x", None))
    with xlaprof.record(tmp_path / "run.log"):
        for batch in (x, y):
            z = (batch * 3).sum()
            xr.sync()
            del z
    found = [cause(event) for event in log.read(tmp_path / "run.log") if isinstance(event, events.Compile)][-1]
    assert found.what == "sharding"
    assert (found.old, found.new) == ("f32[12,4]{devices=[4,1]0,1,2,3}", "f32[12,4]{replicated}")


def test_tables_of_shardings(capsys):
    _, x = on_device()
    xs.mark_sharding(x, GRID, ("a", "b"))
    xs.visualize_tensor_sharding(x, use_color=False)
    assert "│ CPU 0 │ CPU 1 │" in capsys.readouterr().out
    xs.visualize_sharding("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", use_color=False)
    assert "│CPU [0, 1]│" in capsys.readouterr().out
    xs.visualize_sharding("{devices=[6,2]0,1,2,3,4,5,6,7,8,9,10,11}", use_color=False)
    assert "│CPU 10 │CPU 11 │" in capsys.readouterr().out
    with pytest.raises(ValueError, match="sharding has no value"):
        xs.visualize_sharding("")
    with pytest.raises(ValueError, match="a table shows two"):
        xs.visualize_sharding("{devices=[1,2,2]0,1,2,3}")


def test_another_sharding_by_an_operation():
    value, x = on_device()
    xs.mark_sharding(x, ROW, ("x", None))
    xr.sync()
    with pytest.raises(RuntimeError, match="Existing annotation must be cleared first"):
        xs.mark_sharding(x, GRID, ("a", "b"))
    annotated = xs.annotate_custom_sharding(x, GRID, ("a", "b"))
    blocks = "{devices=[2,2]0,1,2,3}"
    assert xs.get_sharding_spec(x) == blocks
    assert (annotated.mesh_shape, annotated.partition_spec) == ((2, 2), (0, 1))
    with counted() as counts:
        xr.sync()
    assert (counts["ExecuteReplicated"], counts["ExecuteComputation"], counts["TransferFromDeviceTime"]) == (1, 0, 0)
    assert xs.get_sharding_spec(x) == blocks
    assert {shard.data.shape for shard in x._storage.array.addressable_shards} == {(4, 4)}
    assert torch.equal(x.cpu(), value)


def test_placements_say_what_a_partition_spec_says():
    x = xs.mark_sharding(on_device((8, 4, 2))[1], GRID, (None, ("a", "b"), None))
    assert x.placements == (Shard(1), Shard(1))
    moved = xs.mark_sharding(on_device((8, 4))[1], GRID, ("b", None))
    assert moved.placements == (Replicate(), Shard(0))
    with pytest.raises(ValueError, match="Placements not available"):
        _ = (moved + 1).placements
    named = xs.wrap_as_sharded_tensor(on_device()[1], mesh_shape=(4,), partition_spec=(None, 0))
    assert named.placements == (Shard(1),)


@pytest.mark.parametrize(
    ("mesh", "placements", "spec", "text"),
    [
        (ROW, [Shard(1)], (None, 0), "{devices=[1,4]0,1,2,3}"),
        (ROW, [Replicate()], (None, None), "{replicated}"),
        (GRID, [Shard(0), Shard(-1)], (0, 1), "{devices=[2,2]0,1,2,3}"),
        (GRID, [Shard(0), Shard(0)], ((0, 1), None), BY_ROWS),
        (GRID, [Replicate(), Shard(0)], (1, None), "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_redistributing(mesh, placements, spec, text, asynchronous):
    value, x = on_device()
    before = xs.mark_sharding(x, ROW, ("x", None))
    moved = before.redistribute(mesh, placements, async_op=asynchronous)
    xr.sync()
    assert (moved.partition_spec, moved.sharding_spec) == (spec, text)
    assert (moved.global_tensor is x) is not asynchronous
    assert before.sharding_spec == (BY_ROWS if asynchronous else text)
    assert torch.equal(moved.cpu(), value)


def test_redistributing_to_what_cannot_be():
    x = xs.mark_sharding(on_device()[1], ROW, ("x", None))
    with pytest.raises(IndexError, match="of a tensor of 2 dimensions"):
        x.redistribute(ROW, [Shard(2)])
    with pytest.raises(ValueError, match="2 placements for the 1 axes of the mesh"):
        x.redistribute(ROW, [Shard(0), Shard(1)])
    with pytest.raises(NotImplementedError, match="redistribute to Shard or Replicate"):
        x.redistribute(ROW, [Partial()])


def test_an_annotation_inside_a_compiled_function():
    value, x = on_device()
    x.requires_grad_()

    def by_columns(t):
        return torch.ops.xla.dynamo_mark_sharding(t * 2, [0, 1, 2, 3], [4], "('x',)", "(None, 0)") + 1

    marked = torch.compile(by_columns, backend="openxla", fullgraph=True)(x)
    marked.sum().backward()
    xr.sync()
    assert xs.get_sharding_spec(marked) == "{devices=[1,4]0,1,2,3}"
    assert torch.equal(marked.detach().cpu(), value * 2 + 1)
    assert torch.equal(x.grad.cpu(), torch.full_like(value, 2))
    eager = by_columns(x.detach())
    assert torch.equal(eager.cpu(), value * 2 + 1)
    assert torch.ops.xla.dynamo_mark_sharding(value, [0], [1], "", "(None, None)").equal(value)
