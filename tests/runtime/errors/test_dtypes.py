"""Integers and booleans that PyTorch has no kernel for, and positions in a tensor of none: refused as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import xlaprof.runtime  # noqa: F401

Call = Callable[[str], object]


def _matrix(device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[1, 0, 1], [0, 1, 1]], device=device).to(dtype)


def _at(device: str, *places: int) -> torch.Tensor:
    return torch.tensor(places, device=device)


CALLS: dict[str, Call] = {
    "cumsum_ of bool": lambda d: _matrix(d, torch.bool).cumsum_(0),
    "lerp_ of int": lambda d: _matrix(d, torch.int32).lerp_(_matrix(d, torch.int32), 0.5),
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
}


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
    ],
)
def test_what_the_cpu_takes_is_taken(call: Callable[[str], torch.Tensor]) -> None:
    torch.testing.assert_close(call("xla").cpu(), call("cpu"))
