"""How XProf ties events of a profile together: steps across host and device, and arrows in the trace viewer.

XProf numbers the root events of the host (``_r``) in their order. Events nested in a root get its number, and so does
the consumer (``_ct``, ``_c``) of what these produce (``_pt``, ``_p``). Here a step on the host is a root that produces
the same step on the device. Executions are not linked that way: one may run during a later step than the one that
started it, and would give that step its number. Arrows are ``flow`` stats, which only the trace viewer reads. Do not
write ``group_id``: XProf writes its own beside it, and then reads the wrong one.
"""

from __future__ import annotations

#: The kind of link between the two sides of a step: any number that means nothing to XProf.
STEP = 12

_IN, _OUT = 1, 2


def flow_out(id: int) -> int:
    """The ``flow`` stat of the event that arrow ``id`` leaves."""
    return _OUT | (id & (2**56 - 1)) << 2


def flow_in(id: int) -> int:
    """The ``flow`` stat of the event that arrow ``id`` reaches."""
    return _IN | (id & (2**56 - 1)) << 2
