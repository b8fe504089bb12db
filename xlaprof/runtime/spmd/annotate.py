"""Annotations: requested shardings of tensors.

A tensor with a value is resharded. A pending one gets an operation that constrains its value, which is part of the
graph. Either way its storage remembers the sharding: in-place writes have it again after the next barrier.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import numpy as np
import torch

from xlaprof.runtime import metrics
from xlaprof.runtime.dispatch.handlers import special
from xlaprof.runtime.trace.storage import NOWHERE, Storage, View
from xlaprof.runtime.trace.tensor import XLATensor

from .mesh import Mesh, PartitionSpec
from .mode import require_spmd
from .placement import on_host
from .sharding import OpSharding
from .tensors.layout import constrain, sharding_of, unwrap_sharded_tensor
from .tensors.sharded_tensor import XLAShardedTensor, wrap_as_sharded_tensor
from .tiles import cut


def mark_sharding(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec, use_dynamo_custom_op: bool = False
) -> XLAShardedTensor:
    """Shard ``t`` over the devices of ``mesh``, in place: ``partition_spec`` says how its dimensions are split.

    Args:
        t: a tensor on ``xla``: a parameter, a batch, or an intermediate result.
        mesh: all devices, as a grid.
        partition_spec: for each dimension of ``t`` the axis of the mesh (number or name), or a tuple of them, that it
            is split over; ``None`` leaves it whole on every device.
        use_dynamo_custom_op: for older scripts; has no effect.

    Returns ``t`` wrapped: its shards can be read. Raises ``AssertionError`` where the spec does not fit,
    ``RuntimeError`` where the SPMD mode is off or ``t`` has another sharding already (:func:`clear_sharding` first).
    """
    _check_length(t, partition_spec)
    mark(t, mesh.get_op_sharding(partition_spec))
    return wrap_as_sharded_tensor(t, mesh.mesh_shape, mesh.numbered(partition_spec))


def _check_length(t: torch.Tensor, partition_spec: PartitionSpec) -> None:
    assert len(t.shape) == len(partition_spec), (
        f"Partition spec length ({len(partition_spec)}) should be equal to the input rank ({len(t.shape)})."
    )


def annotate_custom_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> XLAShardedTensor:
    """:func:`mark_sharding` by an operation of the graph, whatever sharding ``t`` had before.

    Its values stay on the devices: the next barrier exchanges them.
    """
    _check_length(t, partition_spec)
    require_spmd()
    constrain(unwrap_sharded_tensor(t)._storage, mesh.get_op_sharding(partition_spec))
    return wrap_as_sharded_tensor(t, mesh.mesh_shape, mesh.numbered(partition_spec))


def mark(tensor: torch.Tensor, sharding: OpSharding) -> None:
    """Give ``tensor`` the ``sharding``, in place."""
    require_spmd()
    tensor = unwrap_sharded_tensor(tensor)
    if not isinstance(tensor, XLATensor):
        raise RuntimeError(f'mark_sharding wants a tensor on xla, not one on {tensor.device}: .to("xla") first')
    metrics.count("VirtualDeviceUsage")
    storage = tensor._storage
    tape = storage.tape
    partition = tape.partition
    if partition is None:
        raise RuntimeError(f"{tape.torch_device} was not in SPMD mode when the tensor was made: make it again")
    if not _at_rest(storage):
        constrain(storage, sharding)
        return
    if type(storage.array) is np.ndarray:  # still on the host
        storage.sharding = sharding
        partition.on_devices(storage)
    else:
        before = storage.sharding
        if before is not None and before.grid and before is not sharding:
            raise RuntimeError(
                f"Existing annotation must be cleared first: the tensor is sharded {before}, not {sharding}; "
                "call clear_sharding(tensor)"
            )
        if partition.sharding_of(partition.on_devices(storage)) is not sharding:
            array = partition.resharded(storage, sharding)
            with tape.lock:
                storage.array, storage.epoch = array, NOWHERE
    storage.sharding = sharding


def _at_rest(storage: Storage) -> bool:
    """Has ``storage`` an array, and no pending value?"""
    if isinstance(storage, View) or storage.array is None:
        return False
    return storage.epoch != storage.tape.epoch or storage.slot in storage.tape.input_at


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Remove the annotation of ``t``. A value on the devices goes to the host, until it is sharded again."""
    tensor = unwrap_sharded_tensor(t)
    require_spmd()
    storage = cast(XLATensor, tensor)._storage
    storage.sharding = None
    if _at_rest(storage) and isinstance(storage.array, jax.Array):
        storage.array = np.array(cut(on_host(storage.array), storage.sig.shape))
        storage.epoch = NOWHERE
    return cast(torch.Tensor, tensor)


# -- wrapped and with gradients -----------------------------------------------------------------------------


def wrap_if_sharded(x: Any) -> Any:
    """``x`` wrapped if it is a tensor on ``xla`` with a known sharding, else ``x``."""
    if isinstance(x, XLATensor) and sharding_of(x) is not None:
        return XLAShardedTensor(x)
    return x


def _marked(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    copy: torch.Tensor = unwrap_sharded_tensor(t).clone()
    mark(copy, mesh.get_op_sharding(partition_spec))
    return copy


class MarkShardingFunction(torch.autograd.Function):
    """``MarkShardingFunction.apply(tensor, mesh, spec)``: a new tensor that is annotated, and so is its gradient."""

    @staticmethod
    def forward(ctx: Any, torch_tensor: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
        ctx.mesh, ctx.partition_spec = mesh, partition_spec
        return _marked(torch_tensor, mesh, partition_spec)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        return _marked(grad_output, ctx.mesh, ctx.partition_spec), None, None


def mark_sharding_with_gradients(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """A copy of ``t`` that is sharded by ``partition_spec``, and so is its gradient. ``t`` stays as it is."""
    _check_length(t, partition_spec)
    return cast(torch.Tensor, MarkShardingFunction.apply(t, mesh, partition_spec))  # type: ignore[no-untyped-call]


# -- a loader's batches -------------------------------------------------------------------------------------


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
        """:func:`mark_sharding` of ``t``, which is on ``xla``."""
        assert t.device.type == "xla", f"a tensor on {t.device} cannot be sharded: send it to xla first"
        mark_sharding(t, self.mesh, self.partition_spec)


# -- torch.ops.xla.dynamo_mark_sharding, which torch.compile takes into its graph -----------------------------
# The mesh and the partition spec are arguments that a graph can hold: numbers and text.

_NAME = "dynamo_mark_sharding"
_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    f"{_NAME}(Tensor input, int[] device_ids, int[] mesh_shape, str axis_names, str partition_spec) -> Tensor"
)
# No effect on other devices. It returns a new tensor: PyTorch forbids custom operators that return aliases.
_library.impl(_NAME, lambda input, *_: input.clone(), "CompositeExplicitAutograd")
_library.impl(_NAME, lambda input, *_: torch.empty_like(input), "Meta")
torch.library.register_autograd(f"xla::{_NAME}", lambda ctx, grad: (grad, None, None, None, None), lib=_library)
torch.fx.node.has_side_effect(getattr(torch.ops.xla, _NAME).default)


@special(f"xla.{_NAME}.default")
def _mark(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, device_ids, mesh_shape, axis_names, partition_spec = args
    names, spec = (ast.literal_eval(text) for text in (axis_names, partition_spec))
    sharding = Mesh(device_ids, tuple(mesh_shape), names or None).get_op_sharding(spec)
    if not tensor._storage.tape.abstract:
        mark(tensor, sharding)
        return tensor.clone()
    require_spmd()
    marked = tensor.clone()  # in a compiled graph: an argument is not written to
    constrain(marked._storage, sharding)
    return marked
