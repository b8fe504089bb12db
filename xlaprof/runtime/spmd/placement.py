"""Global arrays: the values of the SPMD device, sharded over all devices of the process by jax.

Only the tape of that device has a :class:`Partition`. It gives the sharding of each input (:meth:`Partition.form`, part
of the graph's identity) and of each output, and translates between XLA's tiles
(:class:`~.sharding.OpSharding`) and jax's ``NamedSharding``.

jax holds whole tiles only. A value whose size no tile divides is padded with zeros, and cut to its size where a
program takes it or the host reads it: its storage's signature says the size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlaprof.runtime import metrics
from xlaprof.runtime.execution.upload import upload
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape.graph import Graph
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Sig, Storage

from .sharding import MANUAL, REPLICATED, OpSharding, tiled
from .tiles import ManualEvaluator, cut

#: (size, stride) of an axis of the devices' order
Axis = tuple[int, int]


class Form:
    """Shape, dtype and sharding of an input: the key of its edge. One object per combination."""

    __slots__ = ("dtype", "shape", "sharding", "stored", "text")

    def __init__(self, sig: Sig, sharding: OpSharding, devices: int) -> None:
        self.shape: tuple[int, ...] = sig.shape
        self.dtype: torch.dtype = sig.dtype
        self.sharding = sharding
        #: the shape of the array: for a manual sharding, a tile for each device
        self.stored = (devices, *sig.shape) if sharding is MANUAL else sharding.stored_shape(sig.shape)
        self.text = f"{sig.text}{sharding.text}"

    def __repr__(self) -> str:
        return self.text


class Partition:
    """The devices that one virtual device stands for, and the shardings of values over them."""

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        self.devices = tuple(devices)
        self._factor([(len(self.devices), 1)])
        self._read: dict[tuple[Any, tuple[int, ...]], OpSharding | None] = {}
        self._forms: dict[tuple[Sig, OpSharding], Form] = {}

    def __repr__(self) -> str:
        return f"SPMD:{len(self.devices)}"

    # -- between XLA's shardings and jax's ---------------------------------------------------------------

    def _factor(self, axes: Sequence[Axis]) -> None:
        """Make the mesh: its axes are the prime factors of ``axes``, which are axes of the devices' order.

        There is one mesh for all values: jax must be able to express in it the shardings that XLA chooses by itself.
        """
        self._axes: list[Axis] = []
        for size, stride in sorted(axes, key=lambda axis: axis[1]):
            for prime in _primes(size):
                self._axes.insert(0, (prime, stride))
                stride *= prime
        names = tuple(f"x{i}" for i in range(len(self._axes)))
        self.mesh = Mesh(np.array(self.devices).reshape([size for size, _ in self._axes]), names)
        self.everywhere = NamedSharding(self.mesh, PartitionSpec())
        self.one_each = NamedSharding(self.mesh, PartitionSpec(names))
        self._named: dict[OpSharding, NamedSharding] = {}

    def named(self, sharding: OpSharding) -> NamedSharding:
        """jax's form of ``sharding``, over the one order of the devices: jax refuses a program with several."""
        if not sharding.grid:
            return self.one_each if sharding is MANUAL else self.everywhere
        found = self._named.get(sharding)
        if found is None:
            # Tiles that are no transposition of the devices' order are placed in that order, not where they say.
            dims = _dissect(sharding.tiles) or _dissect(np.arange(sharding.tiles.size).reshape(sharding.tiles.shape))
            assert dims is not None
            spec = [self._names(parts) for parts in dims]
            if None in spec:  # three devices by two, where it was two by three
                self._factor([part for parts in dims for part in parts])
                spec = [self._names(parts) for parts in dims]
            found = self._named[sharding] = NamedSharding(self.mesh, PartitionSpec(*spec[: len(sharding.grid)]))
        return found

    def _names(self, parts: list[Axis]) -> tuple[str, ...] | None:
        """The mesh's axes that ``parts`` run through, the slowest first; ``None`` where they are cut across."""
        names: list[str] = []
        for size, stride in parts:
            whole = 1
            found: list[str] = []
            for i in reversed(range(len(self._axes))):
                if self._axes[i][1] == stride * whole and whole < size:
                    whole *= self._axes[i][0]
                    found.insert(0, f"x{i}")
            if whole != size:
                return None
            names += found
        return tuple(names)

    def sharding_of(self, array: jax.Array) -> OpSharding | None:
        """The sharding of ``array``; ``None`` if it is not on all devices."""
        key = (array.sharding, array.shape)
        try:
            return self._read[key]
        except KeyError:
            found = self._read[key] = self._tiles(*key)
            return found

    def sharding_at_rest(self, array: Any, sig: Sig) -> OpSharding | None:
        """The sharding of ``array``, the value of a storage of ``sig``; ``None`` if it is not on all devices."""
        if not isinstance(array, jax.Array):
            return None
        return self.sharding_of(array) if array.ndim == len(sig.shape) else MANUAL

    def _tiles(self, sharding: Any, shape: tuple[int, ...]) -> OpSharding | None:
        if set(sharding.device_set) != set(self.devices):
            return None
        if sharding.is_fully_replicated:
            return REPLICATED
        index = sharding.devices_indices_map(shape)
        starts = [sorted({tile[dim].start or 0 for tile in index.values()}) for dim in range(len(shape))]
        grid = [len(s) for s in starts]
        tiles = np.zeros((*grid, len(self.devices) // math.prod(grid)), np.int64)
        filled = np.zeros(grid, np.int64)
        for number, device in enumerate(self.devices):
            tile = tuple(starts[dim].index(part.start or 0) for dim, part in enumerate(index[device]))
            tiles[(*tile, filled[tile])] = number
            filled[tile] += 1
        return tiled(tiles, partial=True)

    # -- values at rest ----------------------------------------------------------------------------------

    def form(self, array: Any, sig: Sig) -> Form:
        """The form, as an input, of ``array``, the value at rest of a storage of ``sig``."""
        sharding = self.sharding_at_rest(array, sig)
        assert sharding is not None
        key = (sig, sharding)
        found = self._forms.get(key)
        if found is None:
            found = self._forms.setdefault(key, Form(*key, len(self.devices)))
        return found

    def on_devices(self, storage: Storage) -> Any:
        """Move the value at rest of ``storage`` to the devices, if it is not there; return it."""
        array = storage.array
        if type(array) is np.ndarray:
            storage.array = upload(storage.tape, array, sharding=storage.sharding)
        elif isinstance(array, jax.Array) and self.sharding_of(array) is None:
            storage.array = self.put(np.asarray(array), storage.sharding)
        return storage.array

    def put(self, host: np.ndarray[Any, Any], sharding: OpSharding | None) -> jax.Array:
        """A global array of ``host``'s values. jax may keep the memory: it must not be written to."""
        sharding = sharding or REPLICATED
        stored = sharding.stored_shape(host.shape)
        if stored != host.shape:
            host = np.pad(host, [(0, whole - n) for whole, n in zip(stored, host.shape, strict=True)])
        with jax.enable_x64(True):
            where = self.named(sharding)
            if where.is_fully_addressable:
                array: jax.Array = jax.device_put(host, where)
            else:  # every process has the whole value, and fills its own devices
                array = jax.make_array_from_callback(host.shape, where, lambda index: host[index])
        return array

    def put_part(self, host: np.ndarray[Any, Any], sharding: OpSharding | None) -> jax.Array:
        """A global array of all processes' values, joined along the first dimension.

        Raises ``ValueError`` where the devices of this process do not hold exactly its part.
        """
        if sharding is None or self.everywhere.is_fully_addressable:
            return self.put(host, sharding)
        with jax.enable_x64(True):
            shape = (host.shape[0] * jax.process_count(), *host.shape[1:])
            array: jax.Array = jax.make_array_from_process_local_data(self.named(sharding), host, shape)
        return array

    def resharded(self, storage: Storage, sharding: OpSharding) -> jax.Array:
        """The value at rest of ``storage``, resharded."""
        array = storage.array
        shape = storage.sig.shape
        if array.shape == shape == sharding.stored_shape(shape):
            with jax.enable_x64(True):
                resharded: jax.Array = jax.device_put(array, self.named(sharding))
            return resharded
        return self.put(cut(on_host(array), shape), sharding)

    def gathered(self, storages: Sequence[Storage], arrays: Sequence[Any]) -> list[Any]:
        """The whole values of ``storages``, at rest as ``arrays``, on the host."""
        sharded = sum(1 for array in arrays if isinstance(array, jax.Array))
        for storage, array in zip(storages, arrays, strict=True):
            if self.sharding_at_rest(array, storage.sig) is MANUAL:
                raise RuntimeError(
                    f"a manually sharded tensor {storage.sig} has a value on each device: disable_manual_sharding first"
                )
        if sharded:
            metrics.count("ReplicateShardedData", sharded)
        return [cut(on_host(array), storage.sig.shape) for storage, array in zip(storages, arrays, strict=True)]

    def whole(self, storage: Storage, array: Any) -> jax.Array:
        """The value of ``storage``, at rest as ``array``, as a global array of its shape."""
        if type(array) is np.ndarray:
            array = self.on_devices(storage)
        if array.shape == storage.sig.shape:
            return array  # type: ignore[no-any-return]
        return self.put(cut(on_host(array), storage.sig.shape), None)

    # -- programs ----------------------------------------------------------------------------------------

    def output_shardings(
        self, tape: Tape, storages: Iterable[Storage], slots: Iterable[int]
    ) -> tuple[OpSharding | None, ...]:
        """The shardings of the outputs at ``slots``: annotated, or of what they overwrite; ``None``: XLA chooses."""
        known: dict[int, OpSharding | None] = {}
        for owner, array in zip(tape.owners, tape.arrays, strict=True):
            if owner.epoch == tape.epoch:
                known[owner.slot] = self.sharding_at_rest(array, owner.sig)
        for storage in storages:
            if storage.sharding is not None:
                known[storage.slot] = storage.sharding
        return tuple(known.get(slot) for slot in slots)

    def avals(self, graph: Graph) -> list[jax.ShapeDtypeStruct]:
        """The abstract values of a program's inputs: ``graph``'s, whose signatures are forms."""
        forms: Any = graph.sigs
        return [
            jax.ShapeDtypeStruct(form.stored, JAX_DTYPE[form.dtype], sharding=self.named(form.sharding))
            for form in forms
        ]

    def out_shardings(self, shardings: Sequence[OpSharding | None]) -> list[Any]:
        """jax's shardings of a program's results and, last, of its token; ``None`` is XLA's choice."""
        return [*(sharding and self.named(sharding) for sharding in shardings), self.everywhere]

    def evaluator(self, graph: Graph) -> Any:
        """A function that makes the evaluator of the operations of ``graph``."""
        forms: Any = graph.sigs
        tiles = {slot for slot, form in zip(graph.inputs, forms, strict=True) if form.sharding is MANUAL}
        return lambda *args: ManualEvaluator(self, tiles, *args)

    def with_padding(self, trace: Any, graph: Graph, shardings: Sequence[OpSharding | None]) -> Any:
        """``trace`` over stored values: inputs are cut to their sizes, outputs padded to whole tiles."""

        def whole(floats: Any, ints: Any, seeds: Any, *inputs: Any) -> list[Any]:
            *outputs, token = trace(floats, ints, seeds, *self.unpadded(inputs, graph))
            return [*(self._fill(value, how) for value, how in zip(outputs, shardings, strict=True)), token]

        whole.__name__ = whole.__qualname__ = trace.__name__
        return whole

    def unpadded(self, inputs: Sequence[Any], graph: Graph) -> list[Any]:
        """Inside a program: the ``inputs`` of ``graph``, cut to their sizes."""
        forms: Any = graph.sigs
        return [self._cut(value, form) for value, form in zip(inputs, forms, strict=True)]

    def constrained(self, outputs: Sequence[Any], shardings: Sequence[OpSharding | None]) -> list[Any]:
        """Inside a program: ``outputs`` constrained to ``shardings``."""
        return [
            value if sharding is None else jax.lax.with_sharding_constraint(value, self.named(sharding))
            for value, sharding in zip(outputs, shardings, strict=True)
        ]

    def _cut(self, value: Any, form: Form) -> Any:
        if form.stored == form.shape or form.sharding is MANUAL:
            return value
        return jax.lax.with_sharding_constraint(cut(value, form.shape), self.named(form.sharding))

    def _fill(self, value: Any, sharding: OpSharding | None) -> Any:
        stored = value.shape if sharding is None else sharding.stored_shape(value.shape)
        if sharding is None or stored == value.shape:
            return value
        value = jax.lax.with_sharding_constraint(value, self.named(sharding))
        return jnp.pad(value, [(0, whole - n) for whole, n in zip(stored, value.shape, strict=True)])

    def with_named_shardings(self, results: list[Any]) -> list[Any]:
        """Results of a program, each with a sharding that jax accepts for an input."""
        for i, array in enumerate(results):
            if type(array.sharding) is not NamedSharding:
                sharding = self.sharding_of(array)
                assert sharding is not None
                shards = [shard.data for shard in array.addressable_shards]
                results[i] = jax.make_array_from_single_device_arrays(array.shape, self.named(sharding), shards)
        return results


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """The whole of ``array``. Where other processes hold parts, all of them have to call this."""
    if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        from jax.experimental import multihost_utils

        with jax.enable_x64(True):
            array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


def _primes(n: int) -> list[int]:
    """The prime factors of ``n``, the largest first."""
    found: list[int] = []
    factor = 2
    while n > 1:
        while n % factor == 0:
            found.insert(0, factor)
            n //= factor
        factor += 1
    return found


def _dissect(tiles: np.ndarray[Any, Any]) -> list[list[Axis]] | None:
    """For each axis of ``tiles``, the axes of the devices' order that it runs through, slowest first.

    ``None`` where ``tiles`` is no transposition of a row-major order.
    """
    axes: list[list[Axis]] = []
    rebuilt: Any = np.zeros(tiles.shape, np.int64)
    for dim, size in enumerate(tiles.shape):
        steps = np.moveaxis(tiles, dim, 0).reshape(size, -1)[:, 0] - tiles.reshape(-1)[0]
        rebuilt = rebuilt + steps.reshape([-1 if d == dim else 1 for d in range(tiles.ndim)])
        parts: list[Axis] = []
        while len(steps) > 1:
            stride = int(steps[1])
            run = 2
            while run < len(steps) and steps[run] == run * stride:
                run += 1
            while len(steps) % run:
                run -= 1
            if run == 1:
                return None
            parts.insert(0, (run, stride))
            steps = steps[::run]
        axes.append(parts)
    if not np.array_equal(rebuilt, tiles):
        return None
    expected = 1
    for stride, size in sorted((stride, size) for axis in axes for size, stride in axis):
        if stride != expected:
            return None
        expected *= size
    return axes if expected == tiles.size else None
