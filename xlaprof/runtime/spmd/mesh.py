"""Meshes: the devices as a grid with named axes, and the shardings that partition specs over it describe."""

from __future__ import annotations

import ast
import functools
import math
from collections import OrderedDict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from xlaprof.runtime import metrics
from xlaprof.runtime.tape import tapes

from .mode import global_runtime_device_count
from .sharding import Array, OpSharding, ShardingType

#: for each dimension of a tensor the axis (number or name) or axes of the mesh it is split over; ``None``: not split
PartitionSpec = tuple[tuple[int | str, ...] | int | str | None, ...]


class Mesh:
    """The devices of the job as a grid.

    Args:
        device_ids: the devices' numbers in row-major order of the grid, all of them.
        mesh_shape: the grid's shape.
        axis_names: a name for each axis, each once.

    Raises ``AssertionError``, as PyTorch/XLA does, where these contradict each other or the number of devices.
    """

    device_ids: Array
    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...] | None

    def __init__(
        self, device_ids: Array | Sequence[int], mesh_shape: tuple[int, ...], axis_names: tuple[str, ...] | None = None
    ) -> None:
        ids = device_ids if isinstance(device_ids, np.ndarray) else np.array(device_ids)
        devices = global_runtime_device_count()
        assert devices > 0, "This requires XLA supported device(s)."
        assert devices == len(ids), (
            f"Number of device IDs ({len(ids)}) must match the global number of devices ({devices})"
        )
        if axis_names is not None:
            assert len(mesh_shape) == len(axis_names), (
                f"Number of axis names ({len(axis_names)}) must match mesh dimensions ({len(mesh_shape)})"
            )
            assert len(set(axis_names)) == len(axis_names), f"Axis names must be unique, got: {axis_names}"
        size = math.prod(mesh_shape)
        assert len(ids) == size, f"Number of device IDs ({len(ids)}) must match mesh size ({size})"
        assert len(ids) == len(np.unique(ids)), f"Device IDs must be unique, got: {ids}"
        assert all(d < size for d in ids), f"Device IDs must be less than mesh size ({size}), got: {ids}"
        self.device_ids = ids
        self.mesh_shape = mesh_shape
        self.axis_names = axis_names

    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.mesh_shape)

    def shape(self) -> OrderedDict[Any, int]:
        """Axis (its name, or number where there are no names) -> its size."""
        return OrderedDict(zip(self.axis_names or range(len(self.mesh_shape)), self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> Array:
        """The devices' numbers, in the grid's shape."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """Number of the axis called ``name``; ``None`` if there is none."""
        return self.axis_names.index(name) if self.axis_names is not None and name in self.axis_names else None

    @functools.cache  # noqa: B019 - meshes are few, and live as long as the process
    def get_op_sharding(self, partition_spec: PartitionSpec) -> OpSharding:
        """The sharding of a tensor whose dimensions are split as ``partition_spec`` says.

        Raises ``AssertionError`` for an axis that is out of range or used twice, ``ValueError`` for an unknown name.
        """
        metrics.count("CreateOpSharding")
        if not partition_spec:
            return OpSharding([], [], [], ShardingType.REPLICATED)
        return OpSharding(*self._get_op_sharding_args(partition_spec))

    def _get_op_sharding_args(self, partition_spec: PartitionSpec) -> tuple[Any, Any, Any, int]:
        spec = self.numbered(partition_spec)
        used = [axis for entry in spec for axis in axes_of(entry)]
        assert all(0 <= axis < len(self.mesh_shape) for axis in used), (
            f"partition_spec ({spec}) contains out of bound index into mesh_shape."
        )
        assert len(used) == len(set(used)), (
            f"Each device mesh dimension should appear at most once in partition_spec {spec}."
        )
        tiles = _tile_assignment(self, spec)
        kind = (
            ShardingType.PARTIAL  # over a mesh of more axes than the tensor has dimensions
            if len(tiles.shape) > len(spec)
            else _sharding_type(spec, self.size())
        )
        groups, members = _groups(kind, tiles, spec)
        return tiles.tolist(), groups, members, int(kind)

    def numbered(self, partition_spec: Any) -> tuple[Any, ...]:
        """``partition_spec`` with axis names replaced by their numbers. Raises ``ValueError`` for an unknown name."""
        numbered: list[Any] = []
        for entry in partition_spec:
            if type(entry) is tuple:
                assert not any(type(x) is tuple for x in entry), "Partition spec cannot contain nested tuples"
                numbered.append(self.numbered(entry))
            elif entry is None or type(entry) is int:
                numbered.append(entry)
            elif type(entry) is str:
                axis = self.get_axis_name_idx(entry)
                if axis is None:
                    raise ValueError(f"Axis name {entry} is not defined in the given mesh")
                numbered.append(axis)
            else:
                raise ValueError(f"Spec type {type(entry)} is not supported in partition spec")
        return tuple(numbered)

    def get_jax_mesh(self) -> Any:
        """The same grid as a ``jax.sharding.Mesh``."""
        devices = np.empty(len(self.device_ids), object)
        devices[:] = [tapes.all_devices()[i] for i in self.device_ids]
        names = self.axis_names or tuple(map(str, range(len(self.mesh_shape))))
        return jax.sharding.Mesh(devices.reshape(self.mesh_shape), names)

    def __str__(self) -> str:
        """The text that :meth:`from_str` reads."""
        return (
            f"{{'device_ids': {self.device_ids.tolist()}, 'mesh_shape': {self.mesh_shape}, "
            f"'axis_names': {self.axis_names}}}"
        )

    @classmethod
    def from_str(cls, mesh_str: str) -> Mesh | None:
        """The mesh whose ``str`` is ``mesh_str``; ``None`` for any other text."""
        try:
            fields = ast.literal_eval(mesh_str.replace("Mesh", ""))
            return Mesh(np.array(fields["device_ids"]), fields["mesh_shape"], fields["axis_names"])
        except (ValueError, SyntaxError, KeyError, TypeError):
            return None


class HybridMesh(Mesh):
    """A mesh of slices of devices: ``ici_mesh_shape`` within a slice (fast), ``dcn_mesh_shape`` between slices.

    Axes are in order of increasing network intensity. The order of the devices follows their coordinates in the torus
    of a TPU (``jax.experimental.mesh_utils``). Raises ``ValueError`` where the shapes do not fit the slices there are.
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: tuple[int, ...],
        dcn_mesh_shape: tuple[int, ...] | None = None,
        axis_names: tuple[str, ...] | None = None,
    ) -> None:
        dcn_mesh_shape = dcn_mesh_shape or (1,) * len(ici_mesh_shape)
        assert len(ici_mesh_shape) == len(dcn_mesh_shape)
        self.ici_mesh_shape, self.dcn_mesh_shape = ici_mesh_shape, dcn_mesh_shape
        self.device_attributes = sorted(self._attributes(), key=lambda device: int(device["name"].split(":")[1]))
        slices = "slice_index" in self.device_attributes[0]
        if slices and math.prod(dcn_mesh_shape) == 1:
            raise ValueError("Provide dcn_mesh_shape to create a mesh for multislice")
        if not slices and math.prod(dcn_mesh_shape) > 1:
            raise ValueError("Invalid dcn_mesh_shape for single slice mesh")
        mesh_shape = tuple(a * b for a, b in zip(ici_mesh_shape, dcn_mesh_shape, strict=True))
        ids = _by_torus(self.device_attributes, ici_mesh_shape, dcn_mesh_shape, slices)
        super().__init__(ids.reshape(-1), mesh_shape, axis_names)

    def _attributes(self) -> list[dict[str, Any]]:
        return device_attributes()


def device_attributes() -> list[dict[str, Any]]:
    """Each device's ``name`` ("TPU:0") and jax's attributes of its place: coordinates, core, slice, cores."""
    fields = ("coords", "core_on_chip", "slice_index", "num_cores")
    return [
        {"name": f"{tapes.device_type()}:{i}"}
        | {name: value for name in fields if (value := getattr(device, name, None)) is not None}
        for i, device in enumerate(tapes.devices())
    ]


def _by_torus(attributes: list[dict[str, Any]], ici: tuple[int, ...], dcn: tuple[int, ...], slices: bool) -> Array:
    """Numbers of the devices, in the order of a mesh over their torus; as they are where they have no coordinates."""
    if "coords" not in attributes[0]:
        if math.prod(ici) != len(attributes):
            raise ValueError(f"Number of devices {len(attributes)} must equal the product of mesh_shape {ici}")
        return np.arange(len(attributes)).reshape(ici)
    from jax.experimental import mesh_utils

    devices: Any = [
        SimpleNamespace(id=i, platform="tpu", device_kind="TPU v4", process_index=0, core_on_chip=0, **rest)
        for i, device in enumerate(attributes)
        for rest in [{key: device[key] for key in ("coords", "slice_index") if key in device}]
    ]
    if slices:
        grid = mesh_utils.create_hybrid_device_mesh(ici, dcn, devices, allow_split_physical_axes=True)
    else:
        grid = mesh_utils.create_device_mesh(ici, devices, allow_split_physical_axes=True)
    ids: Array = np.vectorize(lambda device: device.id, otypes=[np.int64])(grid)
    return ids


_global_mesh: Mesh | None = None


def set_global_mesh(mesh: Mesh) -> None:
    """Make ``mesh`` the default of functions that take one."""
    global _global_mesh
    _global_mesh = mesh


def get_global_mesh() -> Mesh | None:
    """The mesh of :func:`set_global_mesh`; ``None`` if there is none."""
    return _global_mesh


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices in one row, whose axis is called ``axis_name``."""
    count = global_runtime_device_count()
    return Mesh(np.arange(count), (count,), None if axis_name is None else (axis_name,))


# -- partition specs -----------------------------------------------------------------------------------------


def axes_of(entry: Any) -> tuple[int, ...]:
    """The axes that an entry of a numbered partition spec names."""
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def _sharding_type(spec: tuple[Any, ...], devices: int) -> ShardingType:
    if devices == 1:
        return ShardingType.MAXIMAL
    if all(entry is None for entry in spec):
        return ShardingType.REPLICATED
    return ShardingType.PARTIAL if any(entry is None for entry in spec) else ShardingType.TILED


def _tile_assignment(mesh: Mesh, spec: tuple[Any, ...]) -> Array:
    """The mesh's devices with an axis for each dimension that is split, in order, and the mesh's other axes last."""
    split = [entry for entry in spec if entry is not None]
    used = [axis for entry in split for axis in axes_of(entry)]
    others = [axis for axis in range(len(mesh.mesh_shape)) if axis not in used]
    sizes = [math.prod(mesh.mesh_shape[axis] for axis in axes_of(entry)) for entry in split]
    tiles = mesh.get_logical_mesh().transpose(used + others)
    return tiles.reshape([*sizes, *(mesh.mesh_shape[axis] for axis in others)])


def _groups(kind: ShardingType, tiles: Array, spec: tuple[Any, ...]) -> tuple[list[Any], list[list[int]]]:
    """For a partial replication: each tile's group number, in the tensor's dimensions, and each group's devices."""
    if kind is not ShardingType.PARTIAL:
        return [], []
    split = sum(entry is not None for entry in spec)
    members = tiles.reshape(math.prod(tiles.shape[:split]), -1)
    sizes = iter(tiles.shape[:split])
    grid = [1 if entry is None else next(sizes) for entry in spec]
    return np.arange(len(members)).reshape(grid).tolist(), members.tolist()
