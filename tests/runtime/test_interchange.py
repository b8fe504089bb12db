"""Values shared with jax and handed to numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xlaprof.runtime as xr

from .counting import counted


def test_a_tensor_is_a_jax_array_and_back_without_a_copy() -> None:
    x = torch.arange(6.0, device="xla").view(2, 3) * 2
    with counted() as counts:
        array = xr.to_jax(x)
        again = xr.from_jax(array)
    assert counts.reads == 0
    assert array.unsafe_buffer_pointer() == xr.to_jax(again).unsafe_buffer_pointer()
    assert (array.shape, array.dtype) == ((2, 3), jnp.float32)
    assert (again + 1).tolist() == [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
    assert jnp.asarray(x).tolist() == x.tolist()
    assert xr.to_jax(x[1]).tolist() == [6.0, 8.0, 10.0]


def test_what_was_shared_stays_as_it_was() -> None:
    x = torch.ones(4, device="xla")
    array = xr.to_jax(x)
    y = xr.from_jax(array)
    for _ in range(3):  # storage that is overwritten is given up to the program, unless somebody shows it
        x.mul_(2)
        y.add_(1)
        xr.sync()
    assert array.tolist() == [1.0] * 4
    assert x.tolist() == [8.0] * 4
    assert y.tolist() == [4.0] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float64, torch.bool, torch.uint8])
def test_dtypes_are_kept(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 3]).to(dtype).to("xla")
    back = xr.from_jax(xr.to_jax(x))
    assert back.dtype == dtype
    assert torch.equal(back.cpu(), x.cpu())
    taken = torch.from_dlpack(x)
    assert (taken.dtype, taken.device.type) == (dtype, "cpu")
    assert torch.equal(taken, x.cpu())


def test_dlpack_hands_out_copies() -> None:
    x = torch.arange(3.0, device="xla")
    there = np.from_dlpack(x)
    x.add_(1)
    xr.sync()
    assert there.tolist() == [0.0, 1.0, 2.0]
    assert jax.dlpack.from_dlpack(x).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(BufferError, match=r"take a copy .*xlaprof\.runtime\.to_jax"):
        x.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(x.requires_grad_())


def test_what_cannot_be_shared_says_why() -> None:
    with pytest.raises(TypeError, match=r"not one on cpu: move it there first"):
        xr.to_jax(torch.ones(1))
    with pytest.raises(TypeError, match=r"not ndarray"):
        xr.from_jax(np.ones(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no dtype for int4"):
        xr.from_jax(jnp.ones(2, jnp.int4))


def test_numpy_gets_no_silent_copies() -> None:
    x = torch.ones(2, device="xla")
    message = r"can't convert xla:0 device type tensor to numpy. Use Tensor.cpu\(\)"
    for take in (lambda: x.numpy(), lambda: np.asarray(x), lambda: np.array(x, dtype=np.float64), lambda: np.sin(x)):
        with pytest.raises(TypeError, match=message):
            take()
    assert x.numpy(force=True).tolist() == [1.0, 1.0]
    with pytest.raises(AttributeError, match="__cuda_array_interface__ on non-CUDA tensor"):
        x.__cuda_array_interface__  # noqa: B018
    assert (x * np.float32(2)).tolist() == (np.float64(2) * x).tolist() == [2.0, 2.0]
