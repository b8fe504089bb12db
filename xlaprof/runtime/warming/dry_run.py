"""A dry run: a function runs as ever, but the device does nothing, and what the function wrote is undone.

Barriers and reads find their graphs as ever. Instead of running, a graph leaves stand-ins: values with a shape
and nothing else, which the next graphs take as inputs. So whatever the function's next call will need is known
afterwards: each graph, with the buffers that it gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

from xlaprof.runtime.execution.program import Plan
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape import mode, tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import NOWHERE, Failed, Sig, Storage, base_of, sig
from xlaprof.runtime.trace.tensor import XLATensor, handle

#: What a tensor shows that a dry run made and something outside of the function kept.
UNDONE = Failed(
    RuntimeError,
    "warm() made it in a dry run, where nothing is computed: what the function keeps outside of modules, gradients and "
    "optimizers has to be made anew after warm()",
)


class StandIn:
    """Stands for an array on the device."""

    __slots__ = ("__weakref__", "sig")
    nbytes = 0

    def __init__(self, sig: Sig) -> None:
        self.sig = sig

    @staticmethod
    def is_deleted() -> bool:
        """As an array of jax's."""
        return False

    @staticmethod
    def is_ready() -> bool:
        """As an array of jax's."""
        return True


def stand_in(shape: tuple[int, ...], dtype: torch.dtype) -> XLATensor:
    """A tensor on the current device, of no value."""
    form = sig(shape, dtype)
    return handle(Storage(tapes.tape(), form, 0, NOWHERE, 0, StandIn(form)))


class DryRun:
    """``with DryRun(compile_ahead, reads=0.0)``: what runs inside finds its graphs, and is undone at the end.

    ``found(tape, plan)`` is called for each graph that would run; ``reads`` is the number that every read gives.
    """

    def __init__(self, found: Callable[[Tape, Plan], object], reads: float) -> None:
        self._found = found
        self._reads = reads
        self._before: dict[int, tuple[Storage, Any]] = {}  # by id: the arrays of what was written
        self._made: dict[int, Any] = {}  # by id: arrays that were read

    def __enter__(self) -> DryRun:
        mode.dry = self
        return self

    def __exit__(self, *_: object) -> None:
        mode.dry = None
        for tape in tapes.existing():
            with tape.lock:
                tape.begin()
                for storage, array in self._before.values():
                    if storage.tape is tape:
                        storage.array, storage.epoch = array, NOWHERE
                        tape.invalidate(storage)
        self._before.clear()

    # -- what the runtime asks of it (:mod:`xlaprof.runtime.tape.mode`) --

    def keep(self, storage: Storage) -> None:
        """``storage`` is about to be written to: remember what it shows now."""
        array = storage.array
        if array is not None and type(array) is not StandIn and id(array) not in self._made:
            self._before.setdefault(id(storage), (storage, array))

    def run(self, tape: Tape, plan: Plan, storages: list[Storage]) -> dict[int, Any]:
        """Stand-ins for what ``plan``'s graph computes for ``storages``, by slot."""
        if any(getattr(node.op, "collective", False) for node in plan.graph.nodes):
            raise RuntimeError("warm() compiles for one process and one device: this graph has collectives")
        for storage in storages:
            self.keep(storage)
        self._found(tape, plan)
        sigs = {out.slot: out.sig for node in plan.graph.nodes for out in node.outs}
        return {slot: StandIn(sigs[slot]) for slot in plan.graph.outs}

    def read(self, tape: Tape, array: Any) -> Any:
        """What a read of ``array`` gives."""
        if type(array) is not StandIn:
            return array
        with jax.enable_x64(True):
            host = np.full(array.sig.shape, self._reads, np.dtype(JAX_DTYPE[array.sig.dtype]))
            made = jax.device_put(host, tape.device)
        self._made[id(made)] = made
        return made

    # -- afterwards --

    def mark_survivors(self, tensors: list[XLATensor]) -> None:
        """Have those of ``tensors`` that were made inside raise an error that says so: they have no value."""
        for tensor in tensors:
            storage = base_of(tensor._storage)
            array = storage.array
            if type(array) is StandIn or id(array) in self._made:
                with storage.tape.lock:
                    storage.array, storage.epoch = UNDONE, NOWHERE
                    storage.tape.invalidate(storage)
