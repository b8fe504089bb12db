"""``torch.distributed.tensor``'s device meshes and placements, for tensors and modules on ``xla``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .annotate import mark_sharding
from .mesh import Mesh, PartitionSpec
from .mode import global_runtime_device_count, is_spmd, use_spmd
from .sharding import ShardingType
from .tensors.layout import unwrap_sharded_tensor
from .tensors.sharded_tensor import XLAShardedTensor


def auto_policy(mod_name: str, mod: nn.Module, mesh: Any) -> None:
    """As ``partition_fn`` of :func:`xla_distribute_module`: leave the sharding to XLA."""
    use_spmd(auto=True)


def _ensure_spmd() -> None:
    if not is_spmd():
        use_spmd()


def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """The :class:`~.mesh.Mesh` of a ``DeviceMesh``."""
    _ensure_spmd()
    assert dt_mesh.size() == global_runtime_device_count(), (
        f"the mesh has {dt_mesh.size()} devices, there are {global_runtime_device_count()}"
    )
    return Mesh(dt_mesh.mesh.flatten().tolist(), tuple(dt_mesh.mesh.size()), dt_mesh.mesh_dim_names)


def convert_to_xla_partition_spec(tensor: torch.Tensor, placements: Sequence[Any]) -> PartitionSpec:
    """For each dimension of ``tensor`` the axis of the mesh whose placement shards it.

    Raises ``ValueError`` for placements other than ``Shard`` and ``Replicate``.
    """
    _ensure_spmd()
    spec: list[Any] = [None] * len(tensor.shape)
    for axis, placement in enumerate(placements):
        if placement.is_shard():
            spec[placement.dim] = axis
        elif not placement.is_replicate():
            raise ValueError(f"Unsupported placement type: {type(placement).__name__}")
    return tuple(spec)


def xla_distribute_tensor(
    tensor: torch.Tensor, device_mesh: Any, placements: Sequence[Any] | None = None
) -> XLAShardedTensor:
    """``tensor``, moved to ``xla``, sharded over ``device_mesh``; replicated where no ``placements`` are given."""
    from torch.distributed.tensor import DTensor, Replicate

    assert device_mesh.device_type == "xla", f"the mesh is of {device_mesh.device_type}, not of xla"
    mesh = convert_to_xla_mesh(device_mesh)
    if isinstance(tensor, DTensor):
        raise ValueError(
            "Cannot distribute a DTensor with local tensor on xla devices.The input tensor must be global."
        )
    if placements is None:
        placements = [Replicate() for _ in range(device_mesh.ndim)]
    assert len(placements) == device_mesh.ndim, (
        "`placements` must have the same length as `device_mesh.ndim`! "
        f"Found placements length: {len(placements)}, and device_mesh.ndim: {device_mesh.ndim}."
    )
    if isinstance(tensor, XLAShardedTensor):
        assert tensor.sharding_type in (None, ShardingType.REPLICATED), (
            "XLAShardedTensor `tensor` is already annotated with non-replication sharding. "
            "Clear the existing sharding annotation first, by calling torch_xla.distributed.spmd.clear_sharding API."
        )
    whole = unwrap_sharded_tensor(tensor)
    whole = whole if whole.is_meta else whole.to(device_mesh.device_type)
    return mark_sharding(whole, mesh, convert_to_xla_partition_spec(whole, placements))


def xla_distribute_module(
    module: nn.Module,
    device_mesh: Any = None,
    partition_fn: Callable[[str, nn.Module, Any], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> nn.Module:
    """Annotate ``module``: ``partition_fn(name, submodule, mesh)`` annotates parameters.

    ``input_fn(module, inputs, mesh)`` and ``output_fn(module, outputs, mesh)``, which annotate inputs and outputs,
    become hooks of its forward pass.
    """
    _ensure_spmd()
    if partition_fn is not None:
        for name, child in module.named_modules():
            partition_fn(name, child, device_mesh)
    if input_fn is not None:
        before = _hook("input_fn", input_fn)
        module.register_forward_pre_hook(lambda mod, inputs: before(mod, inputs, device_mesh))
    if output_fn is not None:
        after = _hook("output_fn", output_fn)
        module.register_forward_hook(lambda mod, inputs, outputs: after(mod, outputs, device_mesh))
    return module


def _hook(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as one of three arguments; the deprecated form has two, without the module."""
    count = len(inspect.signature(function).parameters)
    if count == 2:
        what = name.removesuffix("_fn") + "s"
        warnings.warn(
            f"Deprecating {name} that takes two arguments ({what}, device_mesh), "
            f"please use {name} that takes in (module, {what}, device_mesh) instead!",
            stacklevel=3,
        )
        return lambda module, values, mesh: function(values, mesh)
    if count == 3:
        return function
    raise ValueError(f"{name} should take in 3 arguments, but got {count} arguments!")
