"""Fully sharded data parallelism as annotations: parameters and outputs split over the mesh's axis ``fsdp``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from xlaprof.runtime.pytorch import wrapping
from xlaprof.runtime.tape import tapes

from .annotate import mark_sharding
from .linear import apply_backward_optimization_barrier
from .mesh import Mesh, PartitionSpec, get_global_mesh
from .tensors.layout import sharding_of


def _spec(shape: torch.Size, extra_data_axis: str | None = None, largest: bool = False) -> PartitionSpec:
    """The first or the largest dimension split over ``fsdp``; a 0-dim tensor is replicated."""
    spec: list[Any] = [None] * len(shape)
    if spec:
        axis = shape.index(max(shape)) if largest else 0
        spec[axis] = (extra_data_axis, "fsdp") if extra_data_axis else "fsdp"
    return tuple(spec)


class SpmdFullyShardedDataParallel(wrapping.Wrapper):
    """``module`` with its parameters split over ``fsdp``; XLA gathers what a layer needs, and scatters gradients.

    Args:
        module: moved to ``xla``. Parameters that are annotated already keep their sharding, so that inner modules can
            be wrapped first.
        mesh: has an axis ``fsdp``; the global mesh by default.
        shard_output: ``shard_output(output, mesh)`` annotates the output of ``module``; by default the first tensor is
            split in its first dimension.
        auto_wrap_policy: which children are wrapped too (:mod:`xlaprof.runtime.pytorch.wrapping`), by
            ``auto_wrapper_callable`` if that is given.
        extra_data_axis: another axis of the mesh over which the batch is split.
    """

    _inner = "_orig_module"

    def __init__(
        self,
        module: nn.Module,
        mesh: Mesh | None = None,
        shard_output: Callable[[Any, Mesh], Any] | None = None,
        auto_wrap_policy: Callable[..., Any] | None = None,
        auto_wrapper_callable: Callable[..., Any] | None = None,
        extra_data_axis: str | None = None,
    ) -> None:
        self._require_wrappable(module)
        mesh = mesh or get_global_mesh()
        if mesh is None:
            raise ValueError("No mesh is provided and no global mesh is set. Please provide a mesh.")
        names = mesh.axis_names or ()
        if "fsdp" not in names:
            raise ValueError("The mesh must have an axis named 'fsdp'.")
        if extra_data_axis and extra_data_axis not in names:
            raise ValueError(f"The provided {extra_data_axis} axis is not in the mesh.")
        super().__init__()
        if auto_wrap_policy is not None:
            self._wrap_children(module, auto_wrap_policy, auto_wrapper_callable, mesh=mesh, shard_output=shard_output)
        self._orig_module = module.to(tapes.tape().torch_device)
        self._mesh = mesh
        for param in module.parameters():
            if sharding_of(param) is None:
                mark_sharding(param, mesh, _spec(param.shape, largest=True))
        apply_backward_optimization_barrier(module)

        def first(output: Any, mesh: Mesh) -> None:
            found = output
            if isinstance(output, tuple):
                found = output[0]
                warnings.warn(
                    "The output is a tuple, but only the first element is sharded. "
                    "If this is not intended, please provide your own shard_output callable.",
                    stacklevel=3,
                )
            if not isinstance(found, torch.Tensor):
                raise RuntimeError(
                    f"The output type is not supported: {type(output)}. Please provide your own shard_output callable."
                )
            mark_sharding(found, mesh, _spec(found.shape, extra_data_axis))

        self._shard_output = shard_output or first

    @property
    def module(self) -> nn.Module:
        """The wrapped module."""
        return self._orig_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self.module(*args, **kwargs)
        self._shard_output(output, self._mesh)
        return output
