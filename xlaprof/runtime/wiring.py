"""Doors from the lower rooms to those that few programs need, which are imported when they are first asked for."""

from __future__ import annotations

import os
from typing import Any

import jax

from .tape import tapes


def install() -> None:
    """Set the hooks. Rooms that every program imports set their own where they are defined."""
    tapes.join_job = _join_job
    tapes.make_partition = _partition


def _join_job() -> None:
    if os.environ.get("WORLD_SIZE", "1") != "1":
        from .distributed.job import world

        if world.wants_to_be_joined():
            world.join()


def _partition(devices: tuple[jax.Device, ...]) -> Any:
    from .spmd import placement

    return placement.Partition(devices)
