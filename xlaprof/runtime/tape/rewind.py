"""Takes back the end of a trace that nothing alive needs, after a read.

A loop that reads (``x.sum().item()`` while ``x`` is pending) would record each turn behind the turns before it: every
turn a graph to be found out anew. With the end taken back now and then, its turns follow the path of the first ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlaprof.runtime.trace.storage import NOWHERE, Constant, Copy, Storage

from .grow import DEFAULT

if TYPE_CHECKING:
    from .tape import Tape

#: fewer operations are left: what a step of the program has recorded tells how one differs from the next
LEFT = 64
#: operations taken back must be one for so many storages, which all have to be visited
_WORTH = 8


class Rewound(Exception):
    """The trace has been rewound: slots are others now, and what was to be recorded begins again."""


def rewind(tape: Tape, live: list[Storage] | None = None) -> bool:
    """Begin a new trace at the last operation that a live storage needs, if many came after it; did they?

    Live storages, and the inputs recorded until then, keep their slots. Whatever else has one gets another on its next
    use. ``live``: the tape's, where the caller has looked already. The tape is locked.
    """
    tape.was_read = False
    if tape.node.depth < LEFT:
        return False
    if live is None:
        live = tape.live()
    last = max(map(_last_slot, live), default=-1)
    end = tape.node
    while end.outs and end.slot > last and end.op is not DEFAULT:
        assert end.parent is not None  # only the root has no outputs and no parent
        end = end.parent
    if tape.node.depth - end.depth < max(LEFT, (len(live) + len(tape.arrays)) // _WORTH):
        return False
    before, slots = tape.turn_back(end, live)
    for storage in live:
        storage.epoch = tape.epoch
        if storage.listed == before:
            storage.listed = tape.epoch
        if type(storage) is Copy and storage.of[0] == before:
            storage.of = (tape.epoch, storage.of[1])
        elif type(storage) is Constant and storage.made[0] == before:
            storage.made = (tape.epoch, storage.made[1]) if storage.made[1] < slots else (NOWHERE, 0)
    return True


def _last_slot(storage: Storage) -> int:
    return max(storage.slot, storage.own) if type(storage) is Copy else storage.slot
