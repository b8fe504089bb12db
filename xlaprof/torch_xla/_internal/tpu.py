"""``torch_xla._internal.tpu``: facts about TPUs."""

from __future__ import annotations

import glob
import re

from xlaprof.runtime.tape import tapes


def num_available_chips() -> int:
    """How many TPU chips are plugged into this host."""
    return len(glob.glob("/dev/accel[0-9]*")) or len(glob.glob("/dev/vfio/[0-9]*"))


def version() -> int:
    """The generation: 4 for v4. Raises ``RuntimeError`` where the devices are no TPUs."""
    kind = str(tapes.devices()[0].device_kind)
    found = re.match(r"TPU v(\d+)", kind)
    if found is None:
        raise RuntimeError(f"the device is no TPU, but {kind}")
    return int(found[1])
