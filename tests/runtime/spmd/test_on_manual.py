"""Manual parts: every device computes with its own tile; and what the names of PyTorch/XLA's C++ module do."""

from __future__ import annotations

import pytest
import torch

import xlaprof.runtime as xr
from runtime.counting import counted
from xlaprof.runtime import spmd as xs
from xlaprof.runtime.spmd import manual
from xlaprof.torch_xla import _XLAC as xlac

ROW = xs.Mesh(range(4), (1, 4))


@pytest.fixture(autouse=True)
def _mesh():
    xs.set_global_mesh(ROW)


def test_there_and_back():
    value = torch.arange(72.0).reshape(8, 9)  # nine columns over four devices
    tiles = xs.enable_manual_sharding(value.to("xla"), (0, 1))
    assert (tuple(tiles.shape), tiles.sharding_spec) == ((8, 3), "{manual}")
    tiles = tiles * 2 + torch.ones(8, 1, device="xla")
    whole = xs.disable_manual_sharding(tiles, (0, 1), value.shape)
    assert torch.equal(whole.cpu(), value * 2 + 1)
    assert whole.sharding_spec == "{devices=[1,4]0,1,2,3}"


def test_each_device_has_its_own():
    tiles = xs.enable_manual_sharding(torch.arange(8.0).to("xla"), (1,))
    first = tiles - tiles.mean()  # of two values each
    whole = xs.disable_manual_sharding(first, (1,), (8,))
    assert whole.tolist() == [-0.5, 0.5] * 4


def test_collectives_among_tiles():
    tiles = xs.enable_manual_sharding(torch.arange(4.0).to("xla"), (1,))
    everywhere = manual.spmd_all_reduce("sum", tiles)
    assert xs.disable_manual_sharding(everywhere, (None,), (1,)).tolist() == [6]
    pairs = manual.spmd_all_reduce("max", tiles, 10.0, [[0, 1], [2, 3]])
    assert xs.disable_manual_sharding(pairs, (1,), (4,)).tolist() == [10, 10, 30, 30]
    ones = xs.enable_manual_sharding(torch.ones(8, 8).to("xla"), (None, None))
    parts = manual.spmd_reduce_scatter("sum", ones, 1.0, -1, 4, [[0, 1, 2, 3]])
    assert tuple(parts.shape) == (8, 2)
    assert torch.equal(xs.disable_manual_sharding(parts, (0, 1), (8, 8)).cpu(), torch.full((8, 8), 4.0))
    with pytest.raises(ValueError, match="Invalid reduce type: mean"):
        manual.spmd_all_reduce("mean", tiles)
    with pytest.raises(RuntimeError, match="do not have each of 4 devices once"):
        manual.spmd_all_reduce("sum", tiles, 1.0, [[0, 1]])


def test_tiles_outlive_a_barrier_but_are_not_read():
    tiles = xs.enable_manual_sharding(torch.arange(4.0).to("xla"), (1,)) + 1
    xr.sync()
    assert xs.disable_manual_sharding(tiles * 2, (1,), (4,)).tolist() == [2, 4, 6, 8]
    with pytest.raises(RuntimeError, match=r"a manually sharded tensor f32\[1\] has a value on each device"):
        tiles.cpu()


def test_what_has_to_come_first():
    x = torch.zeros(8, 8).to("xla")
    with pytest.raises(RuntimeError, match="Tensor should have been annotated: mark_sharding first"):
        xlac._spmd_full_to_shard_shape(x)
    with pytest.raises(RuntimeError, match="Marking manual sharding is not supported for a tensor whose value"):
        xs.mark_manual_sharding(x)
    marked = xs.mark_sharding(x + 1, ROW, (0, 1))
    with pytest.raises(RuntimeError, match=r"annotated with manual sharding, it is \{devices"):
        xlac._spmd_shard_to_full_shape(marked, ROW.get_op_sharding((0, 1)), (8, 8), torch.float32)
    assert xs.mark_manual_sharding(torch.ones(2, device="xla") + 1).sharding_spec == "{manual}"


def test_under_pytorch_xla_s_names():
    import xlaprof.torch_xla as served  # noqa: F401
    from xlaprof.torch_xla import _XLAC, _graphs
    from xlaprof.torch_xla.core import xla_model as xm
    from xlaprof.torch_xla.distributed import spmd as names
    from xlaprof.torch_xla.experimental import xla_sharding

    x = torch.randn(8, 8).to("xla")
    assert "Tensor on host: with size [8, 8]" in _graphs.debug_info(x)
    names.mark_sharding(x, ROW, (0, 1))
    assert _XLAC._get_xla_sharding_spec(x) == "{devices=[1,4]0,1,2,3}"
    reported = _graphs.debug_info(x)
    for words in ("XLAShardedData", "Data Device: SPMD:0", "OpSharding: {devices=[1,4]", "NumShards: 4"):
        assert words in reported
    y = names.mark_sharding(x + 1, ROW, (0, 1)).global_tensor
    assert 'custom_call_target="Sharding", sharding={devices=[1,4]' in _XLAC._get_xla_tensors_hlo([y])
    assert _XLAC._get_graph_hash([x + 0]) != _XLAC._get_graph_hash([torch.randn(8, 8).to("xla") + 0])
    (sent,) = xm.send_cpu_data_to_device([torch.ones(1, 16)], "xla:0", names.ShardingSpec(ROW, (0, 1)))
    assert _XLAC._get_xla_sharding_spec(sent) == "{devices=[1,4]0,1,2,3}"
    assert xla_sharding.Mesh is xs.Mesh
    assert _XLAC.OpSharding([], [], [], names.ShardingType.MANUAL).text == "{manual}"


def test_the_mode_is_left_and_entered_again():
    sharded = xs.mark_sharding(torch.ones(4, 4).to("xla"), ROW, (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_USE_SPMD", raising=False)
        xs.disable_spmd()
        try:
            assert (xr.device_count(), xs.is_spmd()) == (4, False)
            there = torch.arange(4.0, device="xla:3")
            assert (there + 1).tolist() == [1, 2, 3, 4]
            with counted() as apart:  # each device has a program of its own
                sums = [torch.ones(3, 5, device=f"xla:{i}").sum() for i in range(4)]
                xr.sync()
            assert (apart.compiles, apart.runs) == (4, 4)
            del sums
        finally:
            with pytest.warns(UserWarning, match="Replicating tensors already initialized on non-virtual XLA device"):
                xs.use_spmd()
    with counted() as together:
        total = torch.ones(3, 5, device="xla").sum()
        xr.sync()
    assert (together.compiles, together.runs) == (1, 1)
    assert total.item() == 15
    assert (there * 2).tolist() == [0, 2, 4, 6], "it moved"
    assert (sharded + 1).sum().item() == 32
