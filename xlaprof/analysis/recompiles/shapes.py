"""Shapes as a log writes them: "f32[8,128]"."""

from __future__ import annotations

import re

from xlaprof.events import Change
from xlaprof.vocabulary import Vocabulary

_SIZES = r"\[([-\d, ]*)\]"


def dims(text: str) -> tuple[int, ...] | None:
    """The sizes in ``text``; ``None`` where it is no shape."""
    found = re.search(_SIZES, text)
    if found is None:
        return None
    return tuple(int(part) for part in found[1].replace(" ", "").split(",") if part)


def dtype(text: str) -> str:
    """ "f32" """
    return text.partition("[")[0] or text


def axes(change: Change) -> tuple[int, ...]:
    """The dimensions in which two shapes of one rank differ."""
    old, new = dims(change.old), dims(change.new)
    if old is None or new is None or len(old) != len(new):
        return ()
    return tuple(axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)


_DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "s8": "int8", "s16": "int16",
    "s32": "int32", "s64": "int64", "i64": "int64", "u8": "uint8", "pred": "bool", "c64": "complex64",
    "c128": "complex128",
}  # fmt: skip


def dtype_code(words: Vocabulary, kind: str) -> str:
    """ "torch.float32" of "f32" """
    name = _DTYPES.get(kind)
    return f"{words.arrays}.{name}" if name else kind
