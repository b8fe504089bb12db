"""Core ATen, the operators that PyTorch's compilers reduce all others to: each is recorded, none runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._decomp import core_aten_decompositions
from torch._ops import OpOverload

import xlaprof.runtime as xr
from xlaprof.runtime.dispatch.fallback import decomposition
from xlaprof.runtime.dispatch.handlers import SPECIAL
from xlaprof.runtime.trace.ops import Op

aten = torch.ops.aten

#: what is computed by PyTorch's decomposition -> a call of it
DECOMPOSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "aten.adaptive_avg_pool1d.default": lambda x: aten.adaptive_avg_pool1d(x, [2]),
    "aten.avg_pool1d.default": lambda x: aten.avg_pool1d(x, [2]),
    "aten.split_with_sizes.default": lambda x: aten.split_with_sizes(x, [1, 3], -1),
    "aten.upsample_bilinear2d.vec": lambda x: aten.upsample_bilinear2d.vec(x[None], [6, 8], False, None),
    "aten.upsample_nearest2d.vec": lambda x: aten.upsample_nearest2d.vec(x[None], None, [2.0, 2.0]),
    "aten.var.dim": lambda x: aten.var.dim(x, [0, 2], False, True),
}
#: what asks for a shape, and computes nothing
QUESTIONS = {
    "aten.sym_is_contiguous.default",
    "aten.sym_numel.default",
    "aten.sym_size.int",
    "aten.sym_storage_offset.default",
    "aten.sym_stride.int",
}


def overloads() -> list[OpOverload]:
    """The overloads that carry the tag ``core``."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace == "aten" and packet in dir(aten):
            func = getattr(getattr(aten, packet), overload or "default")
            if torch.Tag.core in func.tags:
                found.append(func)
    return found


def lowered(func: OpOverload) -> bool:
    return Op(func).lowering is not None or str(func) in SPECIAL


def test_every_core_operator_is_lowered_or_decomposed() -> None:
    for packet in ("nonzero", "convolution", "_embedding_bag", "_pdist_forward"):
        getattr(aten, packet).default  # noqa: B018 - packets are listed once they were asked for
    core = overloads()
    assert len(core) > 150
    assert {str(func) for func in core if not lowered(func)} == {*DECOMPOSED, *QUESTIONS} & {str(f) for f in core}


def test_what_decomposes_into_the_core_is_lowered_or_decomposed() -> None:
    table = [func for func in core_aten_decompositions() if isinstance(func, OpOverload)]
    assert not [str(func) for func in table if not lowered(func) and decomposition(Op(func)) is None]


@pytest.mark.parametrize("name", DECOMPOSED)
def test_decompositions_stay_on_the_device(name: str) -> None:
    x = torch.arange(48.0).reshape(3, 4, 4)
    before, _ = xr.metrics.totals()
    result = DECOMPOSED[name](x.to("xla"))
    ran = {counter for counter, n in xr.metrics.totals()[0].items() if "::" in counter and n > before.get(counter, 0)}
    assert not ran
    torch.testing.assert_close(torch.utils._pytree.tree_map(lambda t: t.cpu(), result), DECOMPOSED[name](x))
