"""``torch_xla._internal.tpu``: facts about the TPUs of this host, found without using one."""

from __future__ import annotations

import math
import os
import re

from jax._src import hardware_utils
from jax._src.clusters import cloud_tpu_cluster

from xlaprof.runtime.distributed.job import launch
from xlaprof.torch_xla import runtime

_KEYS = ("ACCELERATOR_TYPE", "TPU_PROCESS_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS", "WORKER_ID")


def num_available_chips() -> int:
    """How many TPU chips are plugged into this host."""
    return int(hardware_utils.num_available_tpu_chips_and_device_id()[0])


def num_logical_cores_per_chip() -> int:
    """How many devices a chip is: 2 up to v3, then 1."""
    return 2 if version() <= 3 else 1


def num_available_devices() -> int:
    """How many devices this host has: its TPUs' cores or, without a TPU, those that take their place.

    These are as many as ``xmp.spawn`` starts processes, so that Lightning's ``accelerator="tpu"`` trains on any device;
    0 where none is chosen (PJRT_SELECT_DEFAULT_DEVICE=0).
    """
    chips = num_available_chips()
    if chips:
        return chips * num_logical_cores_per_chip()
    return launch.processes_here() if runtime.device_type() else 0


def process_bounds_size() -> int | None:
    """How many processes TPU_PROCESS_BOUNDS says there are on all hosts: 4 for ``"2,2,1"``; ``None`` where unset."""
    bounds = os.environ.get("TPU_PROCESS_BOUNDS")
    return math.prod(map(int, bounds.split(","))) if bounds else None


def task_id() -> int | None:
    """CLOUD_TPU_TASK_ID: the number of this process among all hosts'; ``None`` where unset."""
    task = os.environ.get("CLOUD_TPU_TASK_ID")
    return int(task) if task else None


def get_tpu_env() -> dict[str, str | None]:
    """ACCELERATOR_TYPE, bounds and WORKER_ID of this host, from variables (``TPU_WORKER_ID``) or Cloud's metadata.

    Raises ``OSError`` on a host without TPU.
    """
    if not num_available_chips() and "TPU_ACCELERATOR_TYPE" not in os.environ:
        raise OSError("this host has no TPU: TPU_ACCELERATOR_TYPE is not set, and no chip is plugged in")
    return {key: _from_environment(key) for key in _KEYS}


def _from_environment(key: str) -> str | None:
    named = os.environ.get(key if key.startswith("TPU_") else f"TPU_{key}")
    if named is not None or "TPU_SKIP_MDS_QUERY" in os.environ or not num_available_chips():
        return named
    return cloud_tpu_cluster.get_tpu_env_value(key)


def worker_id() -> int:
    """The number of this host among the slice's; raises as :func:`get_tpu_env` does."""
    return int(get_tpu_env()["WORKER_ID"] or 0)


def get_tpu_type() -> str:
    """``"v6e"`` for an accelerator of type ``"v6e-8"``; raises as :func:`get_tpu_env` does."""
    return str(get_tpu_env()["ACCELERATOR_TYPE"]).partition("-")[0]


def version() -> int:
    """The generation: 4 for v4. Raises ``OSError`` on a host without TPU."""
    _, generation = hardware_utils.num_available_tpu_chips_and_device_id()
    name = get_tpu_type() if generation is None else str(generation.name)
    found = re.search(r"\d", name)
    if found is None:
        raise OSError(f"this host's accelerator is {name}, whose generation is not known")
    return int(found[0])
