"""Takes back the end of a trace that nothing alive needs, after a read.

A loop that reads (``x.sum().item()`` while ``x`` is pending) would record each turn behind the turns before it: every
turn a graph to be found out anew. With its end taken back, each turn follows the path of the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlaprof.runtime.trace.storage import NOWHERE, Constant, Copy, Storage

from .grow import DEFAULT

if TYPE_CHECKING:
    from .tape import Tape

#: operations taken back must be one for so many storages, which all have to be visited
_WORTH = 8


class Rewound(Exception):
    """The trace has been rewound: slots are others now, and what was to be recorded begins again."""


def rewind(tape: Tape) -> bool:
    """Begin a new trace at the last operation that a live storage needs; was there one to take back?

    Live storages, and the inputs recorded until then, keep their slots. Whatever else has one gets another on its next
    use. The tape is locked.
    """
    tape.was_read = False
    live = tape.live()
    if not live:
        rewound = tape.node is not tape.root
        tape.begin()
        return rewound
    last = max(_last_slot(storage) for storage in live)
    end = tape.node
    while end.outs and end.slot > last and end.op is not DEFAULT:
        assert end.parent is not None  # only the root has no outputs and no parent
        end = end.parent
    if (tape.node.depth - end.depth) * _WORTH < len(live) + len(tape.arrays):
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
