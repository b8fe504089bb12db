"""Calling a compiled FX graph: arguments in, one execution, results out."""

from __future__ import annotations

import math
from sys import getrefcount
from time import perf_counter_ns
from typing import Any

import jax
import numpy as np
import torch
from torch.utils._pytree import tree_unflatten

from xlaprof.recording import recorder, stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime import metrics, parity
from xlaprof.runtime.clock import clock
from xlaprof.runtime.execution import compiling, donors, failures, inflight, reads, value_checks
from xlaprof.runtime.execution.inflight import InFlight
from xlaprof.runtime.execution.program import Plan, cache
from xlaprof.runtime.execution.upload import numbers, upload
from xlaprof.runtime.instruments import host_time
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.recompile.graph_diff import Recorded
from xlaprof.runtime.tape import mode, randomness
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace import source
from xlaprof.runtime.trace.storage import NOWHERE, Failed, Storage, View
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.transfer import host

from . import config, donation, variant
from .sketch import COMPUTED, CONSTANT, SELF, Layout
from .variant import Given


class Executable:
    """One program; calling it maps arguments to the program's inputs, and its outputs to the result."""

    def __init__(self, tape: Tape, layout: Layout, args: list[Any], before: Given | None = None) -> None:
        self.tape = tape
        self.before = before  # the arguments this graph was compiled for last, if it was
        self.layout = layout
        graph = layout.graph
        pool = [*args, *layout.captured]
        overwritten = {place for place, _ in layout.writes}
        #: inputs that are donated though nothing overwrites them: the user marked them
        self.given_up = tuple(
            i
            for i, place in enumerate(layout.sources)
            if place not in overwritten
            and i not in layout.kept
            and (place in layout.donors or donation.is_marked(pool[place]))
        )
        for place in layout.donors:
            donation.set_buffer_donation(pool[place], True)
        donated = tuple(
            i
            for i, place in enumerate(layout.sources)
            if i in self.given_up or (place in overwritten and i not in layout.kept)
        )
        self.program: Any = None
        if graph.outs:
            plan = Plan((tape.index, graph.hash, donated, value_checks.enabled), graph)
            self.program = self._compiled(plan, args)
        floats = None if layout.float_args else numbers(tape, np.float64, layout.floats)
        self.numbers = (floats, numbers(tape, np.int64, layout.ints))
        self.no_seeds = upload(tape, np.zeros((0, 2), np.uint32), count=False)
        sigs = {out.slot: out.sig for node in graph.nodes for out in node.outs}
        self.sigs = [sigs[slot] for slot in graph.outs]
        self.frames = [graph.places.get(slot, ()) for slot in graph.outs]

    def _compiled(self, plan: Plan, args: list[Any]) -> Any:
        program = cache.get(plan.key)
        if program is not None:
            metrics.count("CachedCompile")
            return program
        frames, _ = source.here()
        try:
            return compiling.compile_plan(self.layout.tape, plan, "dynamo", frames, lambda: self._diff(args, frames))
        except Exception as error:
            raise failures.explain(error, self.tape, plan.graph, frames) from error

    def _diff(self, args: list[Any], frames: tuple[RawFrame, ...]) -> Recorded | None:
        return variant.graph_diff(self.before, args, self.layout, frames) if self.before is not None else None

    def __call__(self, args: Any) -> Any:
        layout, tape = self.layout, self.tape
        if mode.dry is not None:
            raise RuntimeError('warm() finds the graphs of lazy mode: call what backend="openxla" compiles itself')
        rec = recorder.active
        frames: tuple[RawFrame, ...] = ()
        if rec is not None:
            frames, _ = source.here()
            host_time.arrive(frames)
        pool = [*args, *layout.captured]
        for place in layout.uploads:
            (pool[place],) = host.send(tape, [pool[place].detach()])
        inputs = self._inputs(pool, frames)
        if layout.float_args:
            self._take_floats(pool)
        results = self._run(pool, inputs, frames) if self.program is not None else []
        made = [
            Storage(tape, sig, 0, NOWHERE, 0, array, None, frames)
            for sig, array, frames in zip(self.sigs, results, self.frames, strict=True)
        ]
        for place, new in layout.writes:
            overwrite(pool[place], made[new.at] if new.kind == COMPUTED else pool[new.at]._storage)
        leaves = [
            handle(made[at])
            if kind is COMPUTED
            else at
            if kind is CONSTANT
            else pool[at]
            if kind is SELF
            else _same_value(pool[at])
            for kind, at in layout.outputs
        ]
        if rec is not None:
            clock.leave(frames, tape.node)
        return tree_unflatten(leaves, layout.spec)

    def _take_floats(self, pool: list[Any]) -> None:
        floats = list(self.layout.floats)
        for i, place in self.layout.float_args:
            floats[i] = pool[place].item()
        self.numbers = (numbers(self.tape, np.float64, tuple(floats)), self.numbers[1])

    def _inputs(self, pool: list[Any], frames: Any) -> list[Any]:
        """The arrays of the program's inputs; pending ones are computed first."""
        epoch = self.tape.epoch
        inputs: list[Any] = []
        pending = False
        for place in self.layout.sources:
            storage = pool[place]._storage
            array = storage.array
            if storage.epoch == epoch or type(storage) is View or array is None or type(array) is Failed:
                pending = True
            inputs.append(array)
        return ready(self.tape, [pool[place]._storage for place in self.layout.sources], frames) if pending else inputs

    def _run(self, pool: list[Any], inputs: list[Any], frames: Any) -> list[Any]:
        tape, program, graph = self.tape, self.program, self.layout.graph
        if program.donated:
            self._copy_shared(pool, inputs)
        seeds = self.no_seeds
        if graph.seeds:
            seeds = upload(tape, np.array([randomness.draw(tape.index) for _ in graph.seeds], np.uint32))
        metrics.sample("RunCachedGraphInputData", len(inputs))
        try:
            if program.needs > failures.memory_limit(tape.device) > 0:
                raise failures.OutOfMemory(program.needs)
            start = perf_counter_ns()
            with jax.enable_x64(True):
                *results, token = program.compiled(*self.numbers, seeds, *inputs)
            end = perf_counter_ns()
        except Exception as error:
            raise failures.explain(error, tape, graph, frames or stacks.user_frames(1)) from error
        metrics.sample("RunCachedGraphOutputData", len(results))
        took = end - start
        run = InFlight(tape, program.number, program.tests, start, took, token, "dynamo", frames, graph)
        inflight.add(run, results)
        return results  # type: ignore[no-any-return]

    def _copy_shared(self, pool: list[Any], inputs: list[Any]) -> None:
        """Copy donated inputs whose buffers something else holds; buffers that the user marked are given up."""
        for i in self.program.donated:
            if i in self.given_up:
                storage = pool[self.layout.sources[i]]._storage
                donors.give_up(storage)
            # 3: the storage's, this list's and getrefcount's. More: another tensor has this buffer.
            elif getrefcount(inputs[i]) > 3:
                with jax.enable_x64(True):
                    inputs[i] = jax.numpy.array(inputs[i], copy=True)


#: the class for a tape that stands for several devices: :mod:`xlaprof.runtime.spmd.executable` registers its own
over_devices: type[Executable] = Executable


def executable_for(tape: Tape, layout: Layout, args: list[Any], before: Given | None) -> Executable:
    """The :class:`Executable` for ``tape``'s device or devices. ``before``: what the graph was last compiled for."""
    kind = Executable if tape.partition is None else over_devices
    return kind(tape, layout, args, before)


def ready(tape: Tape, storages: list[Storage], frames: Any) -> list[Any]:
    """The arrays of ``storages``. One execution computes the pending ones, which then are no longer pending."""
    arrays: dict[int, Any] = {}
    pending = []
    for storage in storages:
        if id(storage) in arrays:
            continue
        position = tape.input_at.get(storage.slot) if storage.epoch == tape.epoch else None
        if position is not None:
            arrays[id(storage)] = tape.arrays[position]
        elif storage.epoch == tape.epoch or storage.array is None:
            arrays[id(storage)] = constant(tape, storage)
            if arrays[id(storage)] is None:
                pending.append(storage)
        else:
            failures.raise_if_failed(storage)
            arrays[id(storage)] = storage.array
    if pending:
        if config.skip_input_data_check:
            raise RuntimeError(
                "input data to dynamo graph can not be a pending ir, please set "
                "`torch_xla._dynamo.config.skip_input_data_check` to False"
            )
        metrics.count("DynamoSyncInputExecuteTime")
        for storage, array in zip(pending, reads.values(tape, pending, frames, "dynamo"), strict=True):
            arrays[id(storage)] = array
            reads.materialize(tape, storage, array)
        reads.settle(tape)
    return [arrays[id(storage)] for storage in storages]


#: operators whose result is filled with one number -> the number
_FILLED = {
    "aten.ones_like.default": 1,
    "aten.ones.default": 1,
    "aten.zeros_like.default": 0,
    "aten.zeros.default": 0,
}
_SMALL = 1024
_constants: dict[tuple[Any, ...], Any] = {}


def constant(tape: Tape, storage: Storage) -> Any:
    """The array of a pending ``storage`` that is filled with a known number; ``None`` for all others.

    A backward pass begins with a gradient of 1, which is recorded. PyTorch/XLA executes a graph for it, each step.
    """
    if parity.strict or storage.epoch != tape.epoch or type(storage) is View or math.prod(storage.sig.shape) > _SMALL:
        return None
    node = tape.node
    while node.parent is not None and node.next_slot > storage.slot + 1:
        node = node.parent
    if node.op is None or node.slot != storage.slot or node.op.name not in _FILLED:
        return None
    key = (tape.index, storage.sig, _FILLED[node.op.name])
    array = _constants.get(key)
    if array is None:
        value = np.full(storage.sig.shape, _FILLED[node.op.name]).astype(JAX_DTYPE[storage.sig.dtype])
        array = _constants[key] = upload(tape, value)
    reads.materialize(tape, storage, array)
    return array


def overwrite(tensor: torch.Tensor, storage: Storage) -> None:
    """The storage of ``tensor`` now holds the value of ``storage``."""
    if type(tensor) is not XLATensor or type(tensor._storage) is View or storage.sig is not tensor._storage.sig:
        with torch.no_grad():
            tensor.copy_(handle(storage))
        return
    target, tape = tensor._storage, tensor._storage.tape
    with tape.lock:
        target.array = storage.array
        target.epoch = NOWHERE
        target.frames = target.frames or storage.frames
        tape.invalidate(target)


def _same_value(tensor: Any) -> Any:
    """A new tensor with the value of ``tensor``, in a storage of its own."""
    storage = tensor._storage
    if type(storage) is View:
        return tensor.detach().clone()
    return handle(Storage(storage.tape, storage.sig, 0, NOWHERE, 0, storage.array, None, storage.frames))
