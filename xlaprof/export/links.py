"""How XProf ties events of a profile together: steps across host and device, and arrows in the trace viewer.

XProf numbers the steps itself, in the order of the host events that are roots (``_r``), and gives the number of a root
to what it reaches: what is nested in it, and the consumer (``_ct``, ``_c``) of whatever it produces (``_pt``, ``_p``).
Here a step on the host is a root that produces the same step on the device, and nothing else is tied that way: an
execution may run during a later step than the one that asked for it, and would give that one its number. Arrows are
``flow`` stats, which only the trace viewer reads. Do not write ``group_id``: XProf writes its own beside it, and then
reads the wrong one.
"""

from __future__ import annotations

#: The kind of tie between the two sides of a step. Any number that XProf has no meaning for would do.
STEP = 12

_IN, _OUT = 1, 2


def flow_out(id: int) -> int:
    """The ``flow`` stat of the event that arrow ``id`` leaves."""
    return _OUT | (id & (2**56 - 1)) << 2


def flow_in(id: int) -> int:
    """The ``flow`` stat of the event that arrow ``id`` reaches."""
    return _IN | (id & (2**56 - 1)) << 2
