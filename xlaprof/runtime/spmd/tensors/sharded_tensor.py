"""A wrapper of sharded tensors, by which their shards can be read and set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.utils._pytree import tree_map

from xlaprof.runtime.spmd.mesh import Mesh, axes_of
from xlaprof.runtime.spmd.mode import require_spmd
from xlaprof.runtime.spmd.sharding import ShardingType
from xlaprof.runtime.trace.tensor import XLATensor

from .layout import constrain, get_sharding_spec, get_sharding_type, unwrap_sharded_tensor
from .shards import XLAShard, load, local_shards


class XLAShardedTensor(torch.Tensor):
    """A wrapped tensor on ``xla``; results computed with it are wrapped too."""

    #: the tensor itself
    global_tensor: torch.Tensor
    #: the mesh and the axes (numbers) that it was annotated with; ``None`` for results, which XLA shards
    mesh_shape: tuple[int, ...] | None
    partition_spec: tuple[Any, ...] | None

    @staticmethod
    def __new__(
        cls,
        elem: torch.Tensor,
        mesh_shape: tuple[int, ...] | None = None,
        partition_spec: tuple[Any, ...] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> XLAShardedTensor:
        made: XLAShardedTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=elem.device,
            requires_grad=kwargs.get("requires_grad", False),
        )
        made.global_tensor = elem.detach() if made.requires_grad else elem
        made.mesh_shape, made.partition_spec = mesh_shape, partition_spec
        return made

    @property
    def local_shards(self) -> list[XLAShard]:
        """The shards of this process's devices: one read of the whole tensor."""
        return local_shards(cast(XLATensor, self.global_tensor))

    def load_local_shards_(self, shards: Sequence[XLAShard]) -> None:
        """Set what each device holds. Raises ``RuntimeError`` unless ``shards`` has one of the right size for each."""
        data, devices = [shard.data for shard in shards], [shard.shard_device for shard in shards]
        load(self.global_tensor, data, devices)

    @property
    def sharding_spec(self) -> str:
        """XLA's text of its sharding."""
        return get_sharding_spec(self.global_tensor)

    @property
    def sharding_type(self) -> ShardingType | None:
        """Replicated, tiled, or in tiles that are replicated (partial)."""
        return get_sharding_type(self.global_tensor)

    @property
    def placements(self) -> tuple[Any, ...]:
        """``Shard`` or ``Replicate`` for each axis of the mesh, as ``torch.distributed.tensor`` writes them.

        Raises ``ValueError`` for a tensor that was not annotated, the result of an operation for instance.
        """
        from torch.distributed.tensor import Replicate, Shard  # heavy

        if self.mesh_shape is None or self.partition_spec is None:
            raise ValueError(
                "Placements not available: XLAShardedTensor requires mesh_shape and partition_spec to be set. "
                "Use mark_sharding() to properly initialize sharding information."
            )
        split = {axis: dim for dim, axes in enumerate(self.partition_spec) for axis in axes_of(axes)}
        return tuple(Shard(split[axis]) if axis in split else Replicate() for axis in range(len(self.mesh_shape)))

    def redistribute(self, device_mesh: Mesh, placements: Sequence[Any], *, async_op: bool = False) -> XLAShardedTensor:
        """This tensor, sharded over ``device_mesh`` by ``placements``: one for each axis. With ``async_op`` a copy.

        The exchange is an operation of the graph. Raises ``ValueError`` for another number of placements,
        ``NotImplementedError`` for ``Partial``, ``IndexError`` for a dimension that the tensor does not have.
        """
        if len(placements) != len(device_mesh.mesh_shape):
            raise ValueError(f"{len(placements)} placements for the {len(device_mesh.mesh_shape)} axes of the mesh")
        spec: list[Any] = [None] * self.dim()
        for axis, placement in enumerate(placements):
            if placement.is_partial():
                raise NotImplementedError("a tensor on xla is whole or split: redistribute to Shard or Replicate")
            if placement.is_shard():
                if not -self.dim() <= placement.dim < self.dim():
                    raise IndexError(f"{placement} of a tensor of {self.dim()} dimensions")
                held = spec[placement.dim]
                spec[placement.dim] = axis if held is None else (*axes_of(held), axis)
        tensor = self.global_tensor.clone() if async_op else self.global_tensor
        require_spmd()
        constrain(cast(XLATensor, tensor)._storage, device_mesh.get_op_sharding(tuple(spec)))
        return XLAShardedTensor(tensor, device_mesh.mesh_shape, tuple(spec))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"XLAShardedTensor({self.global_tensor})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.global_tensor.__reduce_ex__(protocol)  # a checkpoint is of the global tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> XLAShardedTensor:
        return XLAShardedTensor(self.global_tensor.__deepcopy__(memo))

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers: one read."""
        return self.global_tensor.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """As on any device: copies to the host only with ``force=True``."""
        return self.global_tensor.numpy(force=force)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*tree_map(unwrap_sharded_tensor, args), **tree_map(unwrap_sharded_tensor, kwargs or {}))
        if str(func).split(".")[1].endswith("_") and isinstance(args[0], XLAShardedTensor):
            return args[0]  # in place
        return tree_map(lambda t: XLAShardedTensor(t) if isinstance(t, XLATensor) else t, result)


def wrap_as_sharded_tensor(
    t: torch.Tensor, mesh_shape: tuple[int, ...] | None = None, partition_spec: tuple[Any, ...] | None = None
) -> XLAShardedTensor:
    """``t``, wrapped if it is not yet, annotated with what is given: this moves no data."""
    if not isinstance(t, XLAShardedTensor):
        return XLAShardedTensor(t, mesh_shape, partition_spec)
    t.mesh_shape = t.mesh_shape if mesh_shape is None else mesh_shape
    t.partition_spec = t.partition_spec if partition_spec is None else partition_spec
    return t
