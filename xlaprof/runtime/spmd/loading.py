"""The sharding of a loader's batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .annotate import mark_sharding
from .mesh import Mesh, PartitionSpec
from .sharding import OpSharding


@dataclass
class ShardingSpec:
    """For ``MpDeviceLoader(input_sharding=)`` and ``send_cpu_data_to_device``: the sharding of tensors of one rank.

    ``minibatch`` says that each process loads its own part of the batch.
    """

    mesh: Mesh
    partition_spec: PartitionSpec
    minibatch: bool | None = False
    op_sharding: OpSharding = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.op_sharding = self.mesh.get_op_sharding(self.partition_spec)

    def xla_spec(self, t: torch.Tensor) -> OpSharding | None:
        """The sharding of ``t``; ``None`` if it has another rank."""
        return self.op_sharding if self.can_apply(t) else None

    def can_apply(self, t: torch.Tensor) -> bool:
        """Has ``t`` as many dimensions as the spec?"""
        return len(t.shape) == len(self.partition_spec)

    def apply(self, t: torch.Tensor) -> None:
        """:func:`~.annotate.mark_sharding` of ``t``, which is on ``xla``."""
        assert t.device.type == "xla", f"a tensor on {t.device} cannot be sharded: send it to xla first"
        mark_sharding(t, self.mesh, self.partition_spec)
