"""Dtypes, shapes and formats that PyTorch's CPU refuses and its meta kernels accept: refused as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import xlaprof.runtime  # noqa: F401

Call = Callable[[str], object]


def _matrix(device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[1, 0, 1], [0, 1, 1]], device=device).to(dtype)


def _at(device: str, *places: int) -> torch.Tensor:
    return torch.tensor(places, device=device)


def _ones(device: str, *shape: int) -> torch.Tensor:
    return torch.ones(shape, device=device)


CALLS: dict[str, Call] = {
    "cumsum_ of bool": lambda d: _matrix(d, torch.bool).cumsum_(0),
    "lerp_ of int": lambda d: _matrix(d, torch.int32).lerp_(_matrix(d, torch.int32), 0.5),
    "the median of no numbers": lambda d: torch.empty(3, 0, device=d).median(-1, keepdim=True),
    "classes of int32": lambda d: F.multi_margin_loss(_ones(d, 2, 3), torch.zeros(2, dtype=torch.int32).to(d)),
    "margins of two dtypes": lambda d: F.multi_margin_loss(
        _ones(d, 2, 3).double(), torch.zeros(2, dtype=torch.int64).to(d), weight=_ones(d, 3)
    ),
    "a histogram with weights of integers": lambda d: torch.histogram(_ones(d, 3), 4, weight=_ones(d, 3).long()),
    "a histogram with fewer weights": lambda d: torch.histogram(_ones(d, 3), 4, weight=_ones(d, 2)),
    "groups with a bias of two dimensions": lambda d: torch.native_group_norm(
        _ones(d, 1, 3), _ones(d, 3), _ones(d, 3, 1), 1, 3, 1, 1, 1e-5
    ),
    "a vector of nothing": lambda d: torch.addmv(_ones(d, 0), _ones(d, 5, 10), _ones(d, 10)),
    "searchsorted among bools": lambda d: torch.searchsorted(_at(d, 0, 1).bool(), _at(d, 0, 1).bool()),
    "bucketize between complex numbers": lambda d: torch.bucketize(_ones(d, 2), _ones(d, 2).to(torch.complex64)),
    "topk of bool": lambda d: _matrix(d, torch.bool).topk(1),
    "softmax of int": lambda d: _matrix(d, torch.int64).softmax(0),
    "std of int": lambda d: _matrix(d, torch.int64).std(),
    "floor_ of bool": lambda d: _matrix(d, torch.bool).floor_(),
    "median of bool": lambda d: _matrix(d, torch.bool).median(),
    "matmul of bool": lambda d: _matrix(d, torch.bool) @ _matrix(d, torch.bool).t(),
    "ldexp_ of int": lambda d: _matrix(d, torch.int64).ldexp_(_matrix(d, torch.int64)),
    "relu6 of complex": lambda d: torch.nn.functional.relu6(_matrix(d, torch.complex64)),
    "clamp_max_ by more numbers than there are": lambda d: torch.ones(1, device=d).clamp_max_(torch.ones(3, device=d)),
    "copysign_ of one row by three": lambda d: torch.ones(1, 2, device=d).copysign_(torch.ones(3, 2, device=d)),
    "gt_ of a number by three": lambda d: torch.ones((), device=d).gt_(torch.ones(3, device=d)),
    "index_reduce of another dtype": lambda d: _matrix(d, torch.int64).index_reduce(
        0, _at(d, 0), _matrix(d, torch.bool)[:1], "prod"
    ),
    "an element of an empty tensor": lambda d: torch.empty(0, device=d).__setitem__(_at(d, 0), 5),
    "scatter_ into an empty tensor": lambda d: torch.empty(0, device=d).scatter_(0, _at(d, 0), 1.0),
    "gather from an empty tensor": lambda d: torch.empty(0, device=d).gather(0, _at(d, 0)),
    "index_add_ of two to a number": lambda d: torch.tensor(1.0, device=d).index_add_(
        0, _at(d, 0, 0), torch.ones(2, device=d)
    ),
    "a mask of other sizes": lambda d: _ones(d, 5, 5).__setitem__(_ones(d, 1, 5).bool(), 1.0),
    "a mask of one row beside a number": lambda d: _ones(d, 5, 5).__setitem__((0, _ones(d, 1).bool()), 1.0),
    "index_put_ of a mask that broadcasts": lambda d: _ones(d, 5, 5).index_put_(
        (_ones(d, 1).bool(),), torch.tensor(1.0, device=d)
    ),
    "_unsafe_index_put of another dtype": lambda d: torch.ops.aten._unsafe_index_put(
        _ones(d, 5).int(), (_at(d, 0),), _at(d, 1)
    ),
    "slice_scatter of fewer rows": lambda d: torch.slice_scatter(_ones(d, 8, 8), _ones(d, 1, 8), start=6),
    "select_scatter of fewer columns": lambda d: torch.select_scatter(_ones(d, 8, 8), _ones(d, 1), 0, 0),
    "index_reduce_ by a matrix": lambda d: _ones(d, 2, 3).index_reduce_(0, _at(d, 0, 1)[None], _ones(d, 2, 3), "amin"),
    "det of a matrix that is no square": lambda d: torch.linalg.det(_ones(d, 6, 5)),
    "slogdet of one that is none": lambda d: torch.linalg.slogdet(_ones(d, 6, 5)),
    "det into another dtype": lambda d: torch.linalg.det(_ones(d, 5, 5), out=_ones(d, 0).double()),
    "lu_factor into another dtype": lambda d: torch.linalg.lu_factor(
        _ones(d, 2, 2) + torch.eye(2, device=d), out=(_ones(d, 0).double(), _ones(d, 0).int())
    ),
    "cummax of a number": lambda d: torch.cummax(torch.tensor(1.0, device=d), 5),
    "sort of a number": lambda d: torch.tensor(1.0, device=d).sort(1),
    "stable sort of a number": lambda d: torch.sort(torch.tensor(1.0, device=d), dim=-2, stable=True),
    "pixel_unshuffle of fewer pixels": lambda d: torch.nn.functional.pixel_unshuffle(_ones(d, 1, 1, 1, 6), 8),
    "padding of a transposed convolution": lambda d: torch.nn.functional.conv_transpose1d(
        _ones(d, 1, 3, 5), _ones(d, 3, 2, 3), stride=2, output_padding=2
    ),
    "histogram over bins of another dtype": lambda d: torch.histogram(_ones(d, 4), _at(d, 0, 1, 2)),
    "histogramdd over bins of another dtype": lambda d: torch.histogramdd(
        _ones(d, 4, 2), [_ones(d, 3), _at(d, 0, 1, 2)]
    ),
    "smooth_l1_loss of complex": lambda d: torch.nn.functional.smooth_l1_loss(_ones(d, 4), _ones(d, 4) + 0j),
    "mse_loss of complex": lambda d: torch.nn.functional.mse_loss(_ones(d, 4), _ones(d, 4) + 0j),
    "aminmax of complex": lambda d: torch.aminmax(_ones(d, 4) + 0j),
    "segment_reduce by floats": lambda d: torch.segment_reduce(_ones(d, 4), "sum", offsets=_ones(d, 2)),
    "polygamma_ of int": lambda d: _ones(d, 5).int().polygamma_(1),
    "group_norm by integers": lambda d: torch.nn.functional.group_norm(_ones(d, 1, 4, 3), 2, _ones(d, 4).long()),
    "layer_norm by integers": lambda d: torch.nn.functional.layer_norm(_ones(d, 4, 3), (3,), _ones(d, 3).long()),
    "batch_norm by integers": lambda d: torch.nn.functional.batch_norm(
        _ones(d, 2, 4, 3), _ones(d, 4).long(), _ones(d, 4)
    ),
    "native_batch_norm by a matrix": lambda d: torch.native_batch_norm(
        _ones(d, 2, 4, 3), None, None, _ones(d, 4, 1), _ones(d, 4), True, 0.1, 1e-5
    ),
    "conv1d with one bias for two channels": lambda d: torch.nn.functional.conv1d(
        _ones(d, 1, 1, 5), _ones(d, 2, 1, 3), _ones(d, 1)
    ),
    "conv_transpose2d with a bias for each input": lambda d: torch.nn.functional.conv_transpose2d(
        _ones(d, 1, 3, 5, 5), _ones(d, 3, 2, 3, 3), _ones(d, 3)
    ),
    "multilabel_margin_loss by int32": lambda d: torch.nn.functional.multilabel_margin_loss(
        _ones(d, 4), _at(d, 0, 1, -1, -1).int()
    ),
    "addmv to a matrix": lambda d: torch.addmv(_ones(d, 1, 2), _ones(d, 2, 3), _ones(d, 3), out=_ones(d, 2)),
    "embedding_bag weighed by integers": lambda d: torch.nn.functional.embedding_bag(
        _at(d, 0, 1), _ones(d, 3, 2), _at(d, 0), mode="sum", per_sample_weights=_at(d, 1, 1)
    ),
    "ctc_loss of targets in three dimensions": lambda d: torch.nn.functional.ctc_loss(
        _ones(d, 9, 2, 4), _ones(d, 1, 2, 3).long(), torch.tensor([9, 9]), torch.tensor([3, 3])
    ),
    "ctc_loss of fewer targets than it is told": lambda d: torch.nn.functional.ctc_loss(
        _ones(d, 9, 2, 4), _ones(d, 2, 3).long(), (9, 9), (3, 7)
    ),
    "the backward pass of softmax over other sizes": lambda d: torch.ops.aten._softmax_backward_data(
        _ones(d, 5), _ones(d, 1, 5), 0, torch.float32
    ),
    "masked_fill_ by floats": lambda d: _ones(d, 4).masked_fill_(_ones(d, 4), 2.0),
    "gcd of floats": lambda d: torch.gcd(_ones(d, 4).double(), _at(d, 1, 2, 3, 4)),
    "lcm_ of floats": lambda d: _ones(d, 4).double().lcm_(_at(d, 1, 2, 3, 4)),
    "lu_solve into another dtype": lambda d: torch.linalg.lu_solve(
        *torch.linalg.lu_factor(torch.eye(2, device=d)), _ones(d, 2, 1), out=_ones(d, 2, 1).bfloat16()
    ),
    "ldl_solve into another dtype": lambda d: torch.linalg.ldl_solve(
        *torch.linalg.ldl_factor(torch.eye(2, device=d)), _ones(d, 2, 1), out=_ones(d, 2, 1) + 0j
    ),
    "one_hot of no numbers": lambda d: torch.nn.functional.one_hot(torch.empty(0, dtype=torch.int64, device=d)),
    "empty_strided, backwards": lambda d: torch.empty_strided((5,), (-3,), device=d),
    "empty_strided of other dimensions": lambda d: torch.empty_strided((5,), (3, 2), device=d),
    "new_empty_strided beyond all memory": lambda d: _ones(d, 3).new_empty_strided((2**40,), (2**40,)),
    "lu_solve of a vector": lambda d: torch.linalg.lu_solve(_ones(d, 3), _ones(d, 3).int(), _ones(d, 3, 1)),
    "lu_solve of fewer pivots": lambda d: torch.linalg.lu_solve(_ones(d, 3, 3), _ones(d, 2).int(), _ones(d, 3, 1)),
    "lu_unpack of floating pivots": lambda d: torch.lu_unpack(_ones(d, 3, 3), _ones(d, 3)),
    "embedding of a table in three dimensions, its rows bounded": lambda d: torch.nn.functional.embedding(
        _at(d, 0, 1), _ones(d, 1, 3, 3), max_norm=1.0
    ),
    "embedding of integers, its rows bounded": lambda d: torch.nn.functional.embedding(
        _at(d, 0, 1), _ones(d, 3, 3).long(), max_norm=1.0
    ),
    "index_reduce_ by a number": lambda d: _ones(d, 1).index_reduce_(0, _at(d, 0), torch.tensor(2.0, device=d), "amax"),
    "index_reduce_ by no index": lambda d: _ones(d, 1).index_reduce_(
        0, torch.empty(0, dtype=torch.int64, device=d), _ones(d, 1), "mean"
    ),
    "index_reduce of other rows": lambda d: _ones(d, 2, 3).index_reduce(0, _at(d, 0), _ones(d, 1, 2), "prod"),
    "floor_divide_ of one row by three": lambda d: _ones(d, 1, 2).floor_divide_(_ones(d, 3, 2)),
    "ormqr of fewer factors": lambda d: torch.ormqr(_ones(d, 4, 4), _ones(d, 0), _ones(d, 4, 4)),
    "cross of two dtypes": lambda d: torch.linalg.cross(_ones(d, 3).double(), _at(d, 1, 2, 3)),
    "bucketize by a matrix": lambda d: torch.bucketize(_ones(d, 3), _ones(d, 2, 3)),
    "binary_cross_entropy with integers": lambda d: torch.nn.functional.binary_cross_entropy(
        _ones(d, 4), _at(d, 1, 0, 1, 1)
    ),
    "lstsq with one dimension more": lambda d: torch.linalg.lstsq(_ones(d, 3, 2), _ones(d, 1, 3, 2)),
    "lstsq of two dtypes": lambda d: torch.linalg.lstsq(_ones(d, 3, 2).double(), _ones(d, 3, 2)),
    "index_add_ of a number": lambda d: _ones(d, 2).index_add_(0, _at(d, 0), torch.tensor(1.0, device=d)),
    "index_add of other rows": lambda d: _ones(d, 2, 3).index_add(0, _at(d, 0), _ones(d, 1, 2)),
    "smooth_l1_loss below nought": lambda d: torch.nn.functional.smooth_l1_loss(_ones(d, 4), _ones(d, 4), beta=-7.0),
    "randint_like from more than its end": lambda d: torch.randint_like(_at(d, 1, 2), 102, 10),
    "addr_ of more rows": lambda d: _ones(d, 1, 1).addr_(_ones(d, 1), _ones(d, 2)),
    "soft_margin_loss of a number": lambda d: torch.nn.functional.soft_margin_loss(
        torch.tensor(1.0, device=d), _ones(d, 5, 5)
    ),
    "channels_last of a vector": lambda d: _ones(d, 3).double(memory_format=torch.channels_last),
    "channels_last_3d of a matrix": lambda d: _ones(d, 3, 4).to(torch.int32, memory_format=torch.channels_last_3d),
    "an empty channels_last vector": lambda d: torch.empty(3, device=d, memory_format=torch.channels_last),
    "one like a matrix": lambda d: torch.empty_like(_ones(d, 3, 4), memory_format=torch.channels_last),
}


def test_what_pytorchs_cpu_kernel_dies_of_is_refused() -> None:
    """``native_batch_norm`` does not look how many running means there are, ``lu_unpack`` how many pivots.

    On the CPU they read beyond them.
    """
    x, two = torch.ones(2, 4, 3, device="xla"), torch.ones(2, device="xla")
    with pytest.raises(RuntimeError, match="running_mean should contain 4 elements not 2"):
        torch.native_batch_norm(x, None, None, two, two, True, 0.1, 1e-5)
    with pytest.raises(RuntimeError, match="Expected 6 pivots, but got 2"):
        torch.lu_unpack(torch.ones(2, 3, 3, device="xla"), two.int())


@pytest.mark.parametrize("call", CALLS)
def test_it_is_refused_in_pytorchs_words(call: str) -> None:
    with pytest.raises((RuntimeError, IndexError)) as here:
        CALLS[call]("cpu")
    with pytest.raises(type(here.value)) as there:
        CALLS[call]("xla")
    assert str(there.value).split("\n")[0].startswith(str(here.value).split("\n")[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda d: _matrix(d, torch.int64).cumsum_(0),
        lambda d: _matrix(d, torch.bool).sum(0),
        lambda d: _matrix(d, torch.int64) // 2,
        lambda d: _matrix(d, torch.bool) & _matrix(d, torch.bool),
        lambda d: torch.empty(2, 0, device=d).index_add_(0, _at(d, 0), torch.empty(1, 0, device=d)),
        lambda d: torch.empty(0, device=d).scatter_(0, torch.empty(0, dtype=torch.int64, device=d), 1.0),
        lambda d: torch.tensor(1.0, device=d).index_fill_(0, _at(d, 0), 2.0),
        lambda d: _ones(d, 5, 5).index_put_((_matrix(d, torch.bool)[:, :1].new_ones(5),), torch.tensor(2.0, device=d)),
        lambda d: torch.slice_scatter(_ones(d, 8, 8), 2 * _ones(d, 2, 8), start=6),
        lambda d: torch.linalg.det(2 * torch.eye(3, device=d).expand(2, 3, 3)),
        lambda d: torch.cummax(torch.tensor(1.0, device=d), -1)[0],
        lambda d: _ones(d, 2, 3).index_add(0, _at(d, 0, 0), _ones(d, 2, 3)),
        lambda d: torch.linalg.lstsq(_ones(d, 3, 1), _ones(d, 3)[None, :, None].expand(2, 3, 1)[0]).solution,
        lambda d: torch.nn.functional.conv_transpose1d(_ones(d, 1, 4, 5), _ones(d, 4, 2, 3), _ones(d, 4), groups=2),
        lambda d: torch.gcd(_at(d, 12, 18), _at(d, 8, 27)),
        lambda d: _ones(d, 3, 2).floor_divide_(2 * _ones(d, 1, 2)),
        lambda d: torch.empty_strided((0, 2), (-3, 1), device=d),
        lambda d: torch.empty_strided((1, 2), (-3, 1), device=d).fill_(2.0),
        lambda d: _ones(d, 3).new_empty_strided((2, 3), (1, 2), device="cpu").fill_(2.0),
        lambda d: torch.nn.functional.conv_transpose1d(
            _ones(d, 1, 3, 5), _ones(d, 3, 2, 3), stride=2, output_padding=1
        ),
        lambda d: torch.nn.functional.layer_norm(_ones(d, 4, 3).bfloat16(), (3,), _ones(d, 3), _ones(d, 3)),
        lambda d: _ones(d, 1, 2, 3, 4).to(torch.float64, memory_format=torch.channels_last),
        lambda d: torch.searchsorted(_ones(d, 3).bool(), _ones(d, 0, 2).bool()),
        lambda d: torch.bucketize(_ones(d, 0).bool(), _ones(d, 3).bool()),
    ],
)
def test_what_the_cpu_takes_is_taken(call: Callable[[str], torch.Tensor]) -> None:
    torch.testing.assert_close(call("xla").cpu(), call("cpu"))


def test_a_call_that_needs_no_kernel_shows_none() -> None:
    """Of no numbers the CPU takes each dtype, and a dimension that is not there is refused first."""
    assert torch.empty(0, dtype=torch.int16, device="xla").softmax(0).shape == (0,)
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ones(3, dtype=torch.int16, device="xla").softmax(7)
    with pytest.raises(NotImplementedError, match="not implemented for 'Short'"):
        torch.ones(3, dtype=torch.int16, device="xla").softmax(0)
