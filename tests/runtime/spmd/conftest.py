"""Four devices in one process: jax must know before it starts, so these tests run in a process of their own.

``test_four_devices.py`` starts it. ``CPU_NUM_DEVICES=4 pytest tests/runtime/spmd`` runs them directly.
"""

import os

FOUR = os.environ.get("CPU_NUM_DEVICES") == "4"

if FOUR:
    from xlaprof.runtime import spmd

    spmd.use_spmd()

collect_ignore_glob = ["test_four_devices.py"] if FOUR else ["test_on_*.py"]
