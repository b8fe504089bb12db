"""``torch_xla.experimental.scan_layers``: layers of one kind, one after another, as a loop over their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .scan import _SCAN_COMPUTATION_CACHE as _ONE_LAYER_CACHE
from .scan import Changed, rolled

__all__ = ["_ONE_LAYER_CACHE", "scan_layers"]


def scan_layers(
    layers: Iterable[torch.nn.Module], input_data: Any, partition_fn: Any = None, is_layer_pure: bool = False
) -> Any:
    """``torch.nn.Sequential(*layers)(input_data)``; given a tuple, each layer takes and returns as many tensors.

    The layers have parameters and buffers of the same names, shapes and dtypes, and compute the same with them: the
    first one is traced for all (see :func:`.scan.scan`, also for ``partition_fn`` and ``is_layer_pure``). Layers that
    write to their buffers, return something else than they take, or cannot be traced, are called one by one.

    Raises ``ValueError`` for a layer unlike the first.
    """
    stack = list(layers)
    if not stack:
        return input_data
    tensors = [_tensors(layer) for layer in stack]
    _alike(tensors)
    step = _Layer(stack[0], tuple(module.training for module in stack[0].modules()))
    stacked = tree_map(lambda *each: torch.stack(each), *tensors)
    try:
        loop = rolled(step, input_data, stacked, len(stack), partition_fn, is_layer_pure) if stacked else None
    except Changed:  # maybe only of the first layer, whose input has another dtype under autocast
        loop = None
    if loop is None or loop.writes_to_xs:
        for layer in stack:
            input_data = _called(layer, input_data)
        return input_data
    return loop(input_data, stacked)[0]


@dataclass(frozen=True)
class _Layer:
    """The first layer, called with the tensors of another. Equal, and traced once, in the same modes."""

    layer: torch.nn.Module
    training: tuple[bool, ...]

    def __call__(self, carry: Any, tensors: dict[str, torch.Tensor]) -> tuple[Any, None]:
        return torch.func.functional_call(self.layer, tensors, carry), None


def _called(layer: torch.nn.Module, given: Any) -> Any:
    return layer(*given) if isinstance(given, tuple) else layer(given)


def _tensors(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(layer.named_parameters()), **dict(layer.named_buffers())}


def _alike(layers: Sequence[dict[str, torch.Tensor]]) -> None:
    first = layers[0]
    for i, other in enumerate(layers):
        if other.keys() != first.keys():
            apart = ", ".join(sorted(other.keys() ^ first.keys()))
            raise ValueError(f"layer {i} has mismatched keys, it is no layer like the first: not both have {apart}")
        for name, tensor in other.items():
            if tensor.shape != first[name].shape:
                expected, got = list(first[name].shape), list(tensor.shape)
                raise ValueError(f"Shape mismatch for {name!r} in layer {i}: the first has {expected}, this {got}")
            if tensor.dtype != first[name].dtype:
                raise ValueError(f"layer {i} has {name!r} as {tensor.dtype}, the first as {first[name].dtype}")
