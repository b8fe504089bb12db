"""Whether a thread is in a call that waits for the device, by its innermost frame.

``loss.item()`` returns once the device has computed the loss. A thread that is found in such a call while the device is
busy waits for it, unless the tensor is one of the CPU's: a loop over many of those looks alike.
"""

from __future__ import annotations

import dis
from types import CodeType

#: methods and functions that wait
WAITING = frozenset(
    {
        "item", "tolist", "cpu", "float", "int", "bool", "__bool__", "__float__", "__int__", "nonzero",
        "synchronize", "_cuda_synchronize",
    }
)  # fmt: skip
#: those of them that do nothing else: the others may copy, or read a tensor of the CPU
ONLY_WAITING = frozenset({"synchronize", "_cuda_synchronize"})
_CACHED = 10_000
_names: dict[tuple[CodeType, int], str] = {}


def called(code: CodeType, at: int) -> str:
    """The name of what the instruction at offset ``at`` calls: "item" of ``loss.item()``; "" where none is called."""
    key = (code, at)
    name = _names.get(key)
    if name is None:
        if len(_names) >= _CACHED:
            _names.clear()
        name = _names[key] = _called(code, at)
    return name


def _called(code: CodeType, at: int) -> str:
    before: list[dis.Instruction] = []
    for one in dis.get_instructions(code):
        if one.offset == at:
            break
        before.append(one)
    else:
        return ""
    if one.opname.startswith(("TO_BOOL", "POP_JUMP", "UNARY_NOT")):
        return "bool"  # of the condition itself
    if not one.opname.startswith("CALL") or one.positions is None:
        return ""
    # the callee begins where the call does, and ends last of what begins there
    start = (one.positions.lineno, one.positions.col_offset)
    last, name = (-1, -1), ""
    for each in before:
        place = each.positions
        if place is None or (place.lineno, place.col_offset) != start or not each.opname.startswith("LOAD_"):
            continue
        end = (place.end_lineno or -1, place.end_col_offset or -1)
        if end >= last and isinstance(each.argval, str):
            last, name = end, each.argval
    return name
