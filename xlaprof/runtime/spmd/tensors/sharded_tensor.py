"""A wrapper of sharded tensors, by which their shards can be read and set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.utils._pytree import tree_map

from xlaprof.runtime.spmd.sharding import ShardingType
from xlaprof.runtime.trace.tensor import XLATensor

from .layout import get_sharding_spec, get_sharding_type, unwrap_sharded_tensor
from .shards import XLAShard, load, local_shards


class XLAShardedTensor(torch.Tensor):
    """A wrapped tensor on ``xla``; results computed with it are wrapped too."""

    #: the tensor itself
    global_tensor: torch.Tensor
    mesh_shape: tuple[int, ...]
    partition_spec: tuple[int | None, ...]

    @staticmethod
    def __new__(cls, elem: torch.Tensor, *args: Any, **kwargs: Any) -> XLAShardedTensor:
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


def wrap_as_sharded_tensor(t: torch.Tensor) -> XLAShardedTensor:
    """``t``, wrapped if it is not yet."""
    return t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(t)
