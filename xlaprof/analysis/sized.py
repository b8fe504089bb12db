"""Operators whose result's size depends on values: the host has to know it, so they read it, and their graph has it.

What to write instead, so that no size depends on values.
"""

from __future__ import annotations

_MASK = "Use a mask (torch.where, masked_fill, ignore_index) instead of selecting by a condition"
_COUNT = "Count into a tensor of fixed length (torch.zeros(n).index_add_) instead"

INSTEAD = {
    "aten::nonzero": _MASK,
    "aten::index": _MASK,
    "aten::index_put": _MASK,
    "aten::index_put_": _MASK,
    "aten::masked_select": _MASK,
    "aten::_unique": _COUNT,
    "aten::unique2": _COUNT,
    "aten::_unique2": _COUNT,
    "aten::unique_dim": _COUNT,
    "aten::bincount": _COUNT,
    "aten::repeat_interleave": "Keep the sum of the repeats fixed, and pass it to repeat_interleave as output_size=",
}
OTHERWISE = "Keep a result of the largest size that may occur, and mask what is not used"
