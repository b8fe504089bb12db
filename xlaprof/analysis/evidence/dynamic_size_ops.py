"""Operators whose result's size depends on values, and what to write instead.

The host has to read the size, and the next graph holds it as a constant.
"""

from __future__ import annotations

_MASK = "Use a mask (torch.where, masked_fill, ignore_index) instead of selecting by a condition"
_COUNT = "Count into a tensor of fixed length (torch.zeros(n).index_add_) instead"
_DISTINCT = "Sort and compare neighbours into a tensor of fixed length instead of keeping only the distinct values"

INSTEAD = {
    "aten::nonzero": _MASK,
    "aten::index": _MASK,
    "aten::_unsafe_index": _MASK,
    "aten::index_put": _MASK,
    "aten::index_put_": _MASK,
    "aten::_index_put_impl_": _MASK,
    "aten::_unsafe_index_put": _MASK,
    "aten::masked_select": _MASK,
    "aten::_unique": _COUNT,
    "aten::unique2": _COUNT,
    "aten::_unique2": _COUNT,
    "aten::unique_dim": _COUNT,
    "aten::unique_consecutive": _DISTINCT,
    "aten::unique_dim_consecutive": _DISTINCT,
    "aten::bincount": _COUNT,
    "aten::repeat_interleave": "Keep the sum of the repeats fixed, and pass it to repeat_interleave as output_size=",
}
OTHERWISE = "Keep a result of the largest size that may occur, and mask what is not used"

#: operators that select by a condition: ``aten::nonzero`` finds the positions
_BY_CONDITION = frozenset(name for name, way in INSTEAD.items() if way is _MASK)


def is_sized(name: str) -> bool:
    """Whether the size of this operator's result depends on values."""
    return name in INSTEAD


def described(name: str) -> str:
    """The operator, with its name in PyTorch/XLA's metrics: "aten::index (a selection by aten::nonzero)"."""
    if name in _BY_CONDITION and name != "aten::nonzero":
        return f"{name} (a selection by aten::nonzero)"
    return name
