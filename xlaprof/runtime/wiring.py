"""Puts the rooms together: installs each, and registers those that few programs need, to be imported on first use."""

from __future__ import annotations

import os
from typing import Any

import jax

from . import dynamo
from .dispatch import composites, dense_only, masks, recurrent, special, untyped_storage
from .instruments import debug, freezing, graph_dump, live_tensors
from .observing import observe
from .pytorch import (
    autocast,
    autograd,
    chunked_loss,
    default_dtype,
    device_guard,
    fork_guard,
    grad_scaler,
    higher_order,
    modules,
    optimizers,
    serialization,
    torch_module,
)
from .tape import randomness, tapes
from .transfer import printing

#: imported for what they register: handlers, methods of the tensor, functions called at barriers
_REGISTERED = (masks, untyped_storage, grad_scaler, printing, debug, graph_dump, live_tensors, freezing)
#: in this order
_INSTALLED = (
    device_guard, special, higher_order, composites, recurrent, dense_only, fork_guard, autocast, autograd, optimizers,
    chunked_loss, torch_module, serialization, modules, randomness, default_dtype, observe, dynamo,
)  # fmt: skip


def install() -> None:
    """Make ``torch.device("xla")`` work."""
    for room in _INSTALLED:
        room.install()
    tapes.join_job = _join_job
    tapes.make_partition = _partition


# -- rooms that are imported on first use ----------------------------------------------------------------


def _join_job() -> None:
    if os.environ.get("WORLD_SIZE", "1") != "1":
        from .distributed.job import world

        if world.should_join():
            world.join()


def _partition(devices: tuple[jax.Device, ...]) -> Any:
    from .spmd import placement

    return placement.Partition(devices)
