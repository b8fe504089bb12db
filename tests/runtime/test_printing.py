"""``repr`` of a tensor on ``xla`` is PyTorch's, with the device in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import xlaprof.runtime as xr

from .counting import counted


@pytest.fixture(autouse=True)
def _options() -> Iterator[None]:
    yield
    torch.set_printoptions(profile="default")


def as_meant(there: torch.Tensor, here: torch.Tensor) -> None:
    """``there`` prints as ``here``, which is on the CPU, would on ``xla:0``."""
    assert repr(there) == _with_device(here)
    assert str(there) == repr(there)


def _with_device(here: torch.Tensor) -> str:
    """What PyTorch's own printer writes for ``here`` when told that it is on ``xla:0``: layout and line breaks too."""
    printer = torch._tensor_str
    add = printer._add_suffixes

    def with_device(text: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
        return add(text, ["device='xla:0'", *suffixes], indent, force_newline)

    printer._add_suffixes = with_device
    try:
        return repr(here)
    finally:
        printer._add_suffixes = add


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype: torch.dtype) -> None:
    here = torch.tensor([[0, 1, 2], [3, 100, 5]]).to(dtype)
    as_meant(here.to("xla"), here)
    as_meant(here[0, 1].to("xla"), here[0, 1])
    as_meant(here[:0].to("xla"), here[:0])
    as_meant(here[0, :0].to("xla"), here[0, :0])


VALUES: list[Callable[[], torch.Tensor]] = [
    lambda: torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0]),
    lambda: torch.tensor([1e-8, 1.0, 1e8]),
    lambda: torch.tensor([1.5 + 2j, complex(torch.nan, 1)]),
    lambda: torch.arange(2000.0),
    lambda: torch.arange(1200).reshape(30, 40),
    lambda: torch.arange(10_000).reshape(10, 10, 100) / 7,
    lambda: torch.zeros(2, 0, 3),
    lambda: torch.tensor(3.25),
    lambda: torch.arange(24).double() * 1e5,  # the suffix needs a line of its own
    lambda: torch.arange(12).view(3, 4).t()[1:],
]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_numbers_and_shapes(number: int) -> None:
    here = VALUES[number]()
    as_meant(here.to("xla"), here)
    torch.set_printoptions(precision=2, linewidth=60, threshold=50, edgeitems=2, sci_mode=True)
    as_meant(here.to("xla"), here)


def test_options_and_defaults() -> None:
    here = torch.arange(12.0).view(3, 4)
    for options in ({"profile": "short"}, {"profile": "full"}, {"edgeitems": 0, "threshold": 1}):
        torch.set_printoptions(**options)  # type: ignore[arg-type]
        as_meant(here.to("xla"), here)
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(torch.float64)
    try:
        for values in (here, here.double(), here.double() * 1j, here[:0]):
            as_meant(values.to("xla"), values)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own, for dual tensors
def test_history_and_parameters() -> None:
    def stories(device: str) -> Iterator[torch.Tensor]:
        weight = nn.Parameter(torch.ones(2, 2, device=device))
        yield weight
        yield nn.Parameter(torch.ones(2, device=device), requires_grad=False)
        yield weight * 2
        yield weight[0]
        yield torch.ones(2, device=device, requires_grad=True)
        yield weight.detach()
        yield nn.Buffer(torch.ones(2, device=device))

    for there, here in zip(stories("xla"), stories("cpu"), strict=True):
        as_meant(there, here)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2, device="xla"), torch.ones(2, device="xla") * 3)
        assert repr(dual) == "tensor([1., 1.], device='xla:0', tangent=tensor([3., 3.], device='xla:0'))"


def test_lists_and_format_strings() -> None:
    x = torch.tensor([1.0, 2.0], device="xla")
    assert str([x, x[0]]) == "[tensor([1., 2.], device='xla:0'), tensor(1., device='xla:0')]"
    assert f"{x}" == str(x)
    assert f"{x[1]:.3f} {x[1]} {x[1].long():>4} {x[1]!r}" == "2.000 2.0    2 tensor(2., device='xla:0')"
    assert f"{x[1].clone().requires_grad_():.1f}" == "2.0"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{x:.3f}"


def test_one_read_however_large() -> None:
    x = torch.arange(5000.0, device="xla") * 2
    with counted() as counts:
        repr(x)
    assert (counts.reads, counts.runs) == (1, 1)
    with counted() as counts:
        repr(x)
    assert (counts.reads, counts.runs) == (1, 0)
    assert xr.device().type in repr(x)
