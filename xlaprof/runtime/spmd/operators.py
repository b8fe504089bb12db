"""``torch.ops.xla.dynamo_mark_sharding``: an annotation that ``torch.compile`` takes into its graph.

The mesh and the partition spec are arguments that a graph can hold: numbers and text.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from xlaprof.runtime.dispatch.handlers import special

from .annotate import mark
from .mesh import Mesh
from .mode import require_spmd
from .sharding import OpSharding
from .tensors.layout import constrain

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


def _sharding(device_ids: list[int], mesh_shape: list[int], axis_names: str, partition_spec: str) -> OpSharding:
    names, spec = (ast.literal_eval(text) for text in (axis_names, partition_spec))
    return Mesh(device_ids, tuple(mesh_shape), names or None).get_op_sharding(spec)


@special(f"xla.{_NAME}.default")
def _mark(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, *where = args
    sharding = _sharding(*where)
    if not tensor._storage.tape.abstract:
        mark(tensor, sharding)
        return tensor.clone()
    require_spmd()
    marked = tensor.clone()  # in a compiled graph: an argument is not written to
    constrain(marked._storage, sharding)
    return marked
