"""Operators whose result's size depends on values, and what to write instead.

The host has to read the size, and the next graph holds it as a constant.
"""

from __future__ import annotations

_MASK = "Use a mask (torch.where, masked_fill, ignore_index) instead of selecting by a condition"
_COUNT = "Count into a tensor of fixed length (torch.zeros(n).index_add_) instead"
_DISTINCT = "Sort and compare neighbours into a tensor of fixed length instead of keeping only the distinct values"

#: operators that select by a condition: ``aten::nonzero`` finds the positions
_BY_CONDITION = (
    "aten::nonzero", "aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_",
    "aten::_index_put_impl_", "aten::_unsafe_index_put", "aten::masked_select",
)  # fmt: skip
_COUNTED = ("aten::_unique", "aten::unique2", "aten::_unique2", "aten::unique_dim", "aten::bincount")

INSTEAD = {
    **dict.fromkeys(_BY_CONDITION, _MASK),
    **dict.fromkeys(_COUNTED, _COUNT),
    **dict.fromkeys(("aten::unique_consecutive", "aten::unique_dim_consecutive"), _DISTINCT),
    "aten::repeat_interleave": "Keep the sum of the repeats fixed, and pass it to repeat_interleave as output_size=",
}
OTHERWISE = "Keep a result of the largest size that may occur, and mask what is not used"


def is_sized(name: str) -> bool:
    """Whether the size of this operator's result depends on values."""
    return name in INSTEAD


def described(name: str) -> str:
    """The operator, with its name in PyTorch/XLA's metrics: "aten::index (a selection by aten::nonzero)"."""
    if name in _BY_CONDITION and name != "aten::nonzero":
        return f"{name} (a selection by aten::nonzero)"
    return name
