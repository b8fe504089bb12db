"""The tensor that knows it is sharded: a wrapper that lets its shards be seen and set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

import torch
from torch.utils._pytree import tree_map

from xlaprof.runtime.trace.tensor import XLATensor

from .sharding import ShardingType


@dataclass
class XLAShard:
    """One device's part of a tensor, as it was when it was asked for."""

    #: on the host; filled up with zeros to the size that all shards have
    data: torch.Tensor
    #: where it belongs in the global tensor, a slice per dimension; ``...`` if it is all of it
    indices: EllipsisType | list[slice]
    #: the device it comes from, ``"CPU:2"``
    shard_device: str
    #: which of the devices that hold the same part this is
    replica_id: int

    @property
    def unpadded_data(self) -> torch.Tensor:
        """:attr:`data` without what fills it up."""
        return self.data[self._filled]

    @unpadded_data.setter
    def unpadded_data(self, t: torch.Tensor) -> None:
        self.data[self._filled] = t

    @property
    def _filled(self) -> Any:
        if isinstance(self.indices, EllipsisType):
            return ...
        return tuple(slice(0, part.stop - part.start) for part in self.indices)


class XLAShardedTensor(torch.Tensor):
    """A tensor on ``xla``, wrapped: what is computed with it is wrapped too."""

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
        """What each device of this process holds: one read of the whole tensor."""
        from . import shards

        return shards.local_shards(cast(XLATensor, self.global_tensor))

    def load_local_shards_(self, shards: Sequence[XLAShard]) -> None:
        """Set what each device holds. Raises ``RuntimeError`` unless ``shards`` has one of the right size for each."""
        from . import shards as module

        module.load(cast(XLATensor, self.global_tensor), [s.data for s in shards], [s.shard_device for s in shards])

    @property
    def sharding_spec(self) -> str:
        """XLA's text of how it lies."""
        from .annotate import get_sharding_spec

        return get_sharding_spec(self.global_tensor)

    @property
    def sharding_type(self) -> ShardingType | None:
        """Replicated, tiled, or in tiles that are replicated (partial)."""
        from .annotate import get_sharding_type

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
        """As for any device: only ``force=True`` copies to the host by itself."""
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
    """``t`` wrapped, unless it is."""
    return t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(t)


def unwrap_sharded_tensor(t: Any) -> Any:
    """The tensor that ``t`` wraps, or ``t``."""
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t
