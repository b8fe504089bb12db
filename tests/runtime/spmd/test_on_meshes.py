"""Meshes and partition specs: what XLA is reported."""

from __future__ import annotations

import pickle
from unittest import mock

import numpy as np
import pytest
import torch

from xlaprof.runtime import spmd as xs
from xlaprof.runtime.spmd.placement import Partition
from xlaprof.runtime.spmd.sharding import REPLICATED, tiled
from xlaprof.runtime.tape import tapes
from xlaprof.torch_xla.distributed import spmd as served

GRID = xs.Mesh(range(4), (2, 2), ("a", "b"))


@pytest.mark.parametrize(
    ("mesh", "spec", "text"),
    [
        (GRID, (0, 1), "{devices=[2,2]0,1,2,3}"),
        (GRID, ("b", "a"), "{devices=[2,2]0,2,1,3}"),
        (GRID, ("a", None), "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"),
        (GRID, (None, "b"), "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"),
        (GRID, (("a", "b"), None), "{devices=[4,1]0,1,2,3}"),
        (GRID, (("b", "a"),), "{devices=[4]0,2,1,3}"),
        (GRID, ("a",), "{devices=[2,2]0,1,2,3 last_tile_dim_replicate}"),
        (GRID, (None, None, None), "{replicated}"),
        (GRID, (), "{replicated}"),
        (xs.Mesh([3, 2, 1, 0], (1, 4)), (0, 1), "{devices=[1,4]3,2,1,0}"),
        (
            xs.Mesh(range(4), (1, 2, 2), ("r", "b", "m")),
            (None, ("r", "m")),
            "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}",
        ),
        (xs.Mesh(range(4), (2, 2, 1)), (2, 1), "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"),
        (xs.get_1d_mesh("x"), ("x", None, None), "{devices=[4,1,1]0,1,2,3}"),
    ],
)  # fmt: skip
def test_what_a_spec_means(mesh, spec, text):
    assert str(mesh.get_op_sharding(spec)) == text


def test_equal_shardings_are_one_object():
    one = GRID.get_op_sharding(("a", None))
    assert one is xs.Mesh(range(4), (2, 2)).get_op_sharding((0, None))
    assert pickle.loads(pickle.dumps(one)) is one
    assert pickle.loads(pickle.dumps(REPLICATED)) is REPLICATED


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: xs.Mesh(range(3), (3,)), r"Number of device IDs \(3\) must match the global number of devices \(4\)"),
        (lambda: xs.Mesh(range(4), (2, 2), ("a",)), r"Number of axis names \(1\) must match mesh dimensions \(2\)"),
        (lambda: xs.Mesh(range(4), (2, 2), ("a", "a")), "Axis names must be unique"),
        (lambda: xs.Mesh(range(4), (2, 3)), r"Number of device IDs \(4\) must match mesh size \(6\)"),
        (lambda: xs.Mesh([0, 1, 2, 2], (4,)), "Device IDs must be unique"),
        (lambda: xs.Mesh([1, 2, 3, 4], (4,)), "Device IDs must be less than mesh size"),
        (lambda: GRID.get_op_sharding((0, 0)), "Each device mesh dimension should appear at most once"),
        (lambda: GRID.get_op_sharding((2, None)), "contains out of bound index into mesh_shape"),
        (lambda: GRID.get_op_sharding((((0,), 1),)), "Partition spec cannot contain nested tuples"),
        (
            lambda: xs.mark_sharding(torch.ones(2, 2), GRID, (0,)),
            r"Partition spec length \(1\) should be equal to the input rank \(2\).",
        ),
    ],
)
def test_what_does_not_fit_is_refused(wrong, words):
    with pytest.raises(AssertionError, match=words):
        wrong()


def test_names_that_are_not_the_mesh_s():
    with pytest.raises(ValueError, match="Axis name c is not defined in the given mesh"):
        GRID.get_op_sharding(("c", None))
    with pytest.raises(ValueError, match=r"Spec type <class 'float'> is not supported in partition spec"):
        GRID.get_op_sharding((0.5, None))


def test_a_mesh_says_what_it_is():
    assert list(GRID.shape().items()) == [("a", 2), ("b", 2)]
    assert GRID.get_logical_mesh().tolist() == [[0, 1], [2, 3]]
    again = xs.Mesh.from_str(str(GRID))
    assert (again.device_ids.tolist(), again.mesh_shape, again.axis_names) == ([0, 1, 2, 3], (2, 2), ("a", "b"))
    assert xs.Mesh.from_str("a mesh") is None
    xs.set_global_mesh(GRID)
    assert xs.get_global_mesh() is GRID


def test_slices_of_a_torus():
    """PyTorch/XLA's own example of two slices of four chips, numbered in no order."""
    places = [("TPU:2", (0, 0)), ("TPU:1", (1, 0)), ("TPU:0", (0, 1)), ("TPU:3", (1, 1))]
    places += [("TPU:4", (0, 0)), ("TPU:7", (1, 0)), ("TPU:6", (0, 1)), ("TPU:5", (1, 1))]
    reported = [{"name": n, "coords": [x, y, 0], "slice_index": i // 4} for i, (n, (x, y)) in enumerate(places)]
    with (
        mock.patch("xlaprof.torch_xla.runtime.global_runtime_device_attributes", return_value=reported),
        mock.patch("xlaprof.runtime.spmd.mesh.global_runtime_device_count", return_value=8),
    ):
        mesh = served.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(2, 1), axis_names=("data", "model"))
        assert mesh.get_logical_mesh().tolist() == [[2, 1], [0, 3], [4, 7], [6, 5]]
        with pytest.raises(ValueError, match="Provide dcn_mesh_shape to create a mesh for multislice"):
            served.HybridMesh(ici_mesh_shape=(2, 4))
    assert xs.HybridMesh(ici_mesh_shape=(4, 1)).get_logical_mesh().tolist() == [[0], [1], [2], [3]]
    with pytest.raises(ValueError, match="Invalid dcn_mesh_shape for single slice mesh"):
        xs.HybridMesh(ici_mesh_shape=(2, 1), dcn_mesh_shape=(2, 1))


@pytest.mark.parametrize(
    "tiles",
    [
        np.arange(4).reshape(2, 2, 1),
        np.arange(4).reshape(2, 2).T.reshape(1, 2, 2),
        np.arange(4).reshape(2, 2).T.reshape(4, 1),
        np.arange(4).reshape(1, 4, 1),
    ],
)
def test_xla_s_words_and_jax_s_say_the_same(tiles):
    partition = Partition(tapes.devices())
    sharding = tiled(tiles, partial=tiles.ndim == 3)
    value = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    array = partition.put(value, sharding)
    assert partition.sharding_of(array) is sharding
    for shard, (tile, _) in zip(array.addressable_shards, sharding.places(4), strict=True):
        rows, columns = sharding.shard_shape((8, 8))
        expected = value[tile[0] * rows :, tile[1] * columns :][:rows, :columns]
        assert np.array_equal(np.asarray(shard.data), expected)
