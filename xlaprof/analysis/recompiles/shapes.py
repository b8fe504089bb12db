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


_KINDS = {"f": "float", "bf": "bfloat", "s": "int", "i": "int", "u": "uint", "c": "complex"}


def dtype_name(kind: str) -> str:
    """ "float32" of "f32"; what is no short name stays as it is."""
    found = re.fullmatch(r"([a-z]+)(\d+)", kind)
    if kind == "pred":
        return "bool"
    return f"{_KINDS[found[1]]}{found[2]}" if found is not None and found[1] in _KINDS else kind


def dtype_code(words: Vocabulary, kind: str) -> str:
    """ "torch.float32" of "f32" """
    name = dtype_name(kind)
    return f"{words.arrays}.{name}" if name != kind else kind
