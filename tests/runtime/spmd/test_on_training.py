"""Models trained over four devices: the losses of one, compiled once."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import xlaprof.runtime as xr
from runtime.counting import counted
from xlaprof.runtime import spmd as xs
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.transfer import loader

GRID = xs.Mesh(range(4), (2, 2), ("data", "model"))
SHARDED = "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}"


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(8, 16), torch.randint(0, 4, (8,))


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, n: int) -> list[float]:
    found = []
    for _ in range(n):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if x.device.type == "xla":
            xr.sync()
        found.append(loss.detach())
    return [loss.item() for loss in found]


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def sharded_mlp() -> nn.Sequential:
    """Its first layer split by rows over "model", its second by columns, as Megatron does."""
    model = mlp().to("xla")
    xs.mark_sharding(model[0].weight, GRID, ("model", None))
    xs.mark_sharding(model[2].weight, GRID, (None, "model"))
    return model


def test_adam_on_a_sharded_mlp():
    x, y = batch()
    plain = mlp()
    expected = losses(plain, adam(plain), x, y, 6)

    model = sharded_mlp()
    optimizer = adam(model)
    x, y = x.to("xla"), y.to("xla")
    xs.mark_sharding(x, GRID, ("data", None))
    warm_up = losses(model, optimizer, x, y, 2)
    with counted() as steady:
        rest = losses(model, optimizer, x, y, 4)
    assert steady.compiles == 0
    assert steady["CachedCompile"] == 4
    assert warm_up + rest == pytest.approx(expected, abs=1e-6)
    assert xs.get_sharding_spec(model[0].weight) == SHARDED
    moments = optimizer.state[model[0].weight]
    assert xs.get_sharding_spec(moments["exp_avg"]) == SHARDED, "the optimizer's state lies as its parameter"
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.cpu(), theirs, atol=1e-6)


def test_a_checkpoint_is_of_the_global_tensor():
    model = sharded_mlp()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "wrapped": xs.wrap_if_sharded(model[0].weight.detach())}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu", weights_only=True)
    assert torch.equal(loaded["model"]["0.weight"], mlp()[0].weight)
    assert torch.equal(loaded["wrapped"], mlp()[0].weight)
    other = sharded_mlp()
    with torch.no_grad():
        other[0].weight.zero_()
    other.load_state_dict(loaded["model"])
    xr.sync()
    assert torch.equal(other[0].weight.detach().cpu(), mlp()[0].weight)
    assert xs.get_sharding_spec(other[0].weight) == SHARDED, "loading keeps the annotation"


def test_memory_counts_a_value_once():
    before = xr.memory_info().bytes_in_use
    x = xs.mark_sharding(torch.ones(64, 64).to("xla"), GRID, ("data", "model"))
    assert xr.memory_info().bytes_in_use - before == 64 * 64 * 4
    assert x.global_tensor._storage.array.addressable_shards[0].data.nbytes == 64 * 64 * 4 // 4


def test_a_loader_lays_its_batches_out():
    mesh = xs.get_1d_mesh("data")
    batches = [{"x": torch.randn(8, 16), "mask": torch.ones(8, 4, 4)} for _ in range(3)]
    spec = {"x": xs.ShardingSpec(mesh, ("data", None)), "mask": xs.ShardingSpec(mesh, ("data", None, None))}
    device = tapes.tape().torch_device
    with counted() as counts:
        found = list(loader.MpDeviceLoader(batches, device, input_sharding=spec))
    assert [xs.get_sharding_spec(b["x"]) for b in found] == ["{devices=[4,1]0,1,2,3}"] * 3
    assert [xs.get_sharding_spec(b["mask"]) for b in found] == ["{devices=[4,1,1]0,1,2,3}"] * 3
    assert torch.equal(found[1]["x"].cpu(), batches[1]["x"])
    assert counts["TransferToDeviceTime"] <= 6
    (plain,) = loader.MpDeviceLoader(batches[:1], device)
    assert xs.get_sharding_spec(plain["x"]) == "{replicated}"


def test_fully_sharded():
    mesh = xs.Mesh(range(4), (4, 1), ("fsdp", "tensor"))
    x, y = batch()
    plain = mlp()
    expected = losses(plain, torch.optim.SGD(plain.parameters(), lr=0.1), x, y, 3)
    model = mlp().to("xla")
    model[0] = xs.SpmdFullyShardedDataParallel(model[0], mesh)
    model = xs.SpmdFullyShardedDataParallel(model, mesh)
    x, y = x.to("xla"), y.to("xla")
    xs.mark_sharding(x, mesh, ("fsdp", None))
    x.requires_grad_()  # or PyTorch warns that a hook of the whole model has nothing to hook
    assert losses(model, torch.optim.SGD(model.parameters(), lr=0.1), x, y, 3) == pytest.approx(expected, abs=1e-6)
    assert {xs.get_sharding_spec(p).count("devices") for p in model.parameters()} == {1}
    assert model[2].weight is model.module[2].weight
    with pytest.raises(ValueError, match="The mesh must have an axis named 'fsdp'"):
        xs.SpmdFullyShardedDataParallel(mlp(), GRID)
    with pytest.raises(RuntimeError, match="Cannot wrap a module that is already wrapped with FSDP"):
        xs.SpmdFullyShardedDataParallel(model, mesh)


def test_wrapping_by_policy():
    import functools

    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    xs.set_global_mesh(xs.get_1d_mesh("fsdp"))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear})
    model = xs.SpmdFullyShardedDataParallel(mlp(), auto_wrap_policy=policy)
    assert isinstance(model[0], xs.SpmdFullyShardedDataParallel)
    assert model(torch.ones(8, 16, device="xla")).shape == (8, 4)
    assert xs.get_sharding_spec(model[0].weight) == "{devices=[4,1]0,1,2,3}"


def test_annotations_with_gradients():
    x = torch.randn(8, 8).to("xla").requires_grad_()
    doubled = x * 2
    y = xs.mark_sharding_with_gradients(doubled, GRID, ("data", None))
    assert xs.get_sharding_spec(y) == "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"
    assert xs.get_sharding_spec(doubled) == ""
    (y**2).sum().backward()
    assert torch.allclose(x.grad.cpu(), 8 * x.detach().cpu())


def test_linear_layers_that_keep_dimensions_apart():
    torch.manual_seed(0)
    layer = nn.Linear(8, 4).to("xla")
    x = torch.randn(2, 3, 8).to("xla")
    expected = layer(x)
    expected.sum().backward()
    weight, bias = layer.weight.grad.cpu(), layer.bias.grad.cpu()
    layer.zero_grad()
    (patched,) = xs.apply_xla_patch_to_nn_linear(nn.Sequential(layer))
    assert isinstance(patched, xs.EinsumLinear)
    found = patched(x)
    found.sum().backward()
    assert torch.allclose(found.cpu(), expected.cpu(), atol=1e-5)
    assert torch.allclose(patched.weight.grad.cpu(), weight, atol=1e-5)
    assert torch.allclose(patched.bias.grad.cpu(), bias, atol=1e-5)


def test_compiled_by_dynamo():
    x, y = batch()
    plain = mlp()
    expected = losses(plain, torch.optim.SGD(plain.parameters(), lr=0.1), x, y, 3)
    model = sharded_mlp()
    compiled = torch.compile(model, backend="openxla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = losses(compiled, optimizer, x.to("xla"), y.to("xla"), 3)
    assert found == pytest.approx(expected, abs=1e-6)
    assert xs.get_sharding_spec(model[0].weight) == SHARDED


def test_device_meshes_and_placements_of_pytorch():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Partial, Replicate, Shard

    grid = DeviceMesh("xla", torch.arange(4).reshape(2, 2), _init_backend=False, _rank=0)
    value = torch.arange(32.0).reshape(4, 8)
    spread = xs.xla_distribute_tensor(value, grid, [Replicate(), Shard(0)])
    assert spread.sharding_spec == "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}"
    assert torch.equal(spread.cpu(), value)
    assert xs.xla_distribute_tensor(value, grid).sharding_spec == "{replicated}"
    with pytest.raises(ValueError, match="Unsupported placement type: Partial"):
        xs.xla_distribute_tensor(value, grid, [Partial(), Replicate()])

    def shard(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        if isinstance(module, nn.Linear):
            xs.xla_distribute_tensor(module.weight, mesh, [Shard(0), Replicate()])

    model = xs.xla_distribute_module(mlp().to("xla"), grid, shard)
    assert xs.get_sharding_spec(model[2].weight) == "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"
