"""Type promotion is the CPU's: of every pair of dtypes, among tensors, 0-dim tensors and Python numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xlaprof.runtime as xr

DTYPES = [
    torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
]  # fmt: skip
FEW_DTYPES = [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.complex64]
MORE_DTYPES = [torch.int8, torch.int32, torch.float16, torch.complex128]
NUMBERS = [True, 2, -3, 2.5, 1.5j]

Operation = Callable[[Any, Any], Any]


def _first(dtype: torch.dtype) -> torch.Tensor:
    """Extremes, so that what wraps around does."""
    if dtype is torch.bool:
        return torch.tensor([False, True, True, False, True])
    if dtype.is_complex:
        return torch.tensor([1 + 2j, -3 - 1j, 0.5j, 2, -7.5], dtype=dtype)
    if dtype.is_floating_point:
        return torch.tensor([0.5, -3.25, 7.0, -0.0, 100.0], dtype=dtype)
    limits = torch.iinfo(dtype)
    return torch.tensor([3, limits.max, limits.min, 7, 100], dtype=dtype)


def _second(dtype: torch.dtype) -> torch.Tensor:
    """No zeros: integers divided by one raise on the CPU, and not where that is a value on the device."""
    if dtype is torch.bool:
        return torch.tensor([True, True, True, True, True])
    if dtype.is_complex:
        return torch.tensor([2 - 1j, 3 + 0.5j, -1j, 0.25, 3], dtype=dtype)
    if dtype.is_floating_point:
        return torch.tensor([2.5, -1.5, 3.0, 4.0, -0.125], dtype=dtype)
    return torch.tensor([2, 3, 5, -1 if dtype.is_signed else 1, 4], dtype=dtype)


def _pairs(dtypes: list[torch.dtype]) -> Iterator[tuple[torch.Tensor, Any]]:
    for one in dtypes:
        a = _first(one)
        for other in dtypes:
            b = _second(other)
            yield a, b
            yield a, b[1].clone()
            yield a[1].clone(), b[1].clone()
        for number in NUMBERS:
            yield a, number
            yield a[1].clone(), number


def _setitem(a: torch.Tensor, b: Any) -> torch.Tensor:
    a = a.clone()
    a[...] = b
    return a


def _mask(a: torch.Tensor) -> torch.Tensor:
    return torch.tensor([True, False, True, False, True], device=a.device)[: a.numel()].view(a.shape)


def _no_zeros(a: torch.Tensor) -> torch.Tensor:
    """Complex powers of 0 differ between PyTorch's own kernels."""
    return torch.where(a == 0, torch.ones_like(a), a)


OPERATIONS: dict[str, Operation] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor division": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncated division": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": lambda a, b: torch.pow(_no_zeros(a), b),
    "float_power": lambda a, b: torch.float_power(_no_zeros(a), b),
    "rsub": lambda a, b: b - a,
    "rdiv": lambda a, b: b / a,
    "rfloordiv": lambda a, b: b // _second(a.dtype).to(a.device),
    "eq": torch.eq,
    "lt": torch.lt,
    "ge": torch.ge,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "and": operator.and_,
    "xor": operator.xor,
    "shift": lambda a, b: a << b,
    "logical_xor": torch.logical_xor,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "where": lambda a, b: torch.where(_mask(a), a, b),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "clamp": lambda a, b: torch.clamp(a, min=b),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=2),
    "add with alpha": lambda a, b: torch.add(a, b, alpha=2),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "masked_fill": lambda a, b: a.masked_fill(_mask(a), b),
    "add_": lambda a, b: a.clone().add_(b),
    "mul_": lambda a, b: a.clone().mul_(b),
    "div_": lambda a, b: a.clone().div_(b),
    "eq_": lambda a, b: a.clone().eq_(b),
    "copy_": lambda a, b: a.clone().copy_(b),
    "a[...] = b": _setitem,
}
_FAST = ("add", "div", "add_")


def _outcome(operation: Operation, a: torch.Tensor, b: Any) -> Any:
    try:
        return operation(a, b)
    except (RuntimeError, TypeError) as error:
        return error


def _compare(operation: Operation, dtypes: list[torch.dtype]) -> None:
    """One graph of all pairs: the same dtypes, values and errors as on the CPU."""
    results = []
    for a, b in _pairs(dtypes):
        there = b.to("xla") if isinstance(b, torch.Tensor) else b
        results.append((a, b, _outcome(operation, a.to("xla"), there), _outcome(operation, a, b)))
    xr.sync()
    for a, b, ours, theirs in results:
        what = f"{a!r} and {b!r}: {ours!r}, on the CPU {theirs!r}"
        if "without overflow" in str(theirs):  # it depends on a value, which is on the device
            continue
        if isinstance(theirs, NotImplementedError):  # no kernel there; here there may be one
            assert isinstance(ours, (torch.Tensor, RuntimeError)), what
        elif isinstance(theirs, Exception):
            assert isinstance(ours, type(theirs)), what
            assert str(ours)[:40] == str(theirs)[:40], what
        elif theirs.dtype is torch.complex32:  # which the device has no form for
            assert "torch.complex32 tensor cannot live on xla" in str(ours), what
        else:
            assert isinstance(ours, torch.Tensor), what
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), what
            tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-12, torch.complex128: 1e-12}
            close = tolerance.get(theirs.dtype, 1e-5)
            values = ours.cpu()
            if theirs.is_complex():  # which infinity a quotient by zero is, C's standard leaves open (annex G)
                assert torch.equal(values.isfinite(), theirs.isfinite()), what
                values, theirs = values[theirs.isfinite()], theirs[theirs.isfinite()]
            torch.testing.assert_close(
                values, theirs, rtol=close, atol=close, equal_nan=True, msg=lambda text, w=what: f"{w}: {text}"
            )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", _FAST)
def test_pairs(name: str) -> None:
    _compare(OPERATIONS[name], FEW_DTYPES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_pair(name: str) -> None:
    _compare(OPERATIONS[name], DTYPES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add", "mul", "pow", "lt", "add_"])
def test_every_pair_of_all_dtypes(name: str) -> None:
    _compare(OPERATIONS[name], DTYPES + MORE_DTYPES)


def test_scalars_of_both_kinds_keep_their_rank() -> None:
    # A 0-dim tensor made on the host becomes a scalar of the graph; it does not rank as a Python number for that.
    wide = torch.tensor(300).to("xla")
    narrow = torch.tensor(5, dtype=torch.uint8).to("xla")
    assert (narrow + wide).dtype == torch.int64
    assert (narrow + wide).item() == 305
    precise = torch.tensor(1 / 3, dtype=torch.float64).to("xla")
    assert (torch.tensor(1).to("xla") * precise).item() == 1 / 3
    assert (torch.tensor(1 / 3).to("xla") + precise).dtype == torch.float64
    assert (torch.ones(2, device="xla") * precise).dtype == torch.float32
    assert (torch.ones(2, dtype=torch.int32, device="xla") * precise).dtype == torch.float64
    assert torch.result_type(narrow, 2.5) == torch.float32


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_default_dtype_is_what_python_floats_become(default: torch.dtype) -> None:
    integers = torch.arange(1, 4, device="xla")
    torch.set_default_dtype(default)
    try:
        assert (integers + 1.5).dtype == (integers / 2).dtype == integers.sqrt().dtype == default
        assert (integers * 2).dtype == torch.int64
        assert torch.ones(2, device="xla").dtype == default
    finally:
        torch.set_default_dtype(torch.float32)


@settings(max_examples=10, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_wrap_around_as_on_the_cpu(a: int, b: int) -> None:
    dtypes = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    here = [torch.tensor([a, b]).to(dtype) for dtype in dtypes]
    there = [t.to("xla") for t in here]
    wrapped = [(t + t.flip(0), t * t.flip(0), -t, t.abs(), t - 1, t.sum(), t.prod(), t**3) for t in there]
    expected = [(t + t.flip(0), t * t.flip(0), -t, t.abs(), t - 1, t.sum(), t.prod(), t**3) for t in here]
    xr.sync()
    for dtype, ours, theirs in zip(dtypes, wrapped, expected, strict=True):
        assert [t.tolist() for t in ours] == [t.tolist() for t in theirs], dtype


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_the_smallest_integer_has_divisors_too(dtype: torch.dtype) -> None:
    smallest = torch.iinfo(dtype).min
    x = torch.tensor([smallest, smallest, smallest, 0, 12], dtype=dtype)
    y = torch.tensor([3, 0, smallest, 0, -18], dtype=dtype)
    divisor, multiple, power = (
        torch.gcd(x.to("xla"), y.to("xla")),
        torch.lcm(x.to("xla"), y.to("xla")),
        x.to("xla") ** 65,
    )
    xr.sync()
    assert divisor.tolist() == torch.gcd(x, y).tolist()
    assert multiple.tolist() == torch.lcm(x, y).tolist()
    assert power.tolist() == (x**65).tolist()


REFUSED: list[tuple[Callable[[str], Any], str]] = [
    (lambda d: torch.ones(2, dtype=torch.bool, device=d) - torch.ones(2, dtype=torch.bool, device=d), "two bool"),
    (lambda d: torch.ones(2, dtype=torch.bool, device=d) - 1, "with a bool tensor is not supported"),
    (lambda d: 1 - torch.ones(2, dtype=torch.bool, device=d), "with a bool tensor is not supported"),
    (lambda d: torch.ones(2, device=d) - True, "with a bool tensor is not supported"),
    (lambda d: -torch.ones(2, dtype=torch.bool, device=d), "Negation, the `-` operator, on a bool tensor"),
    (lambda d: torch.arange(3, device=d) ** -2, "Integers to negative integer powers are not allowed"),
    (lambda d: torch.arange(3, device=d).add_(0.5), "result type Float can't be cast to the desired output type Long"),
    (lambda d: torch.arange(3, device=d).div_(2), "result type Float can't be cast"),
    (lambda d: torch.ones(2, device=d).mul_(1j), "result type ComplexFloat can't be cast"),
    (lambda d: torch.ones(2, dtype=torch.bool, device=d).add_(1), "result type Long can't be cast"),
    (lambda d: torch.add(torch.arange(3, device=d), 1, alpha=1.5), "For integral input tensors, argument alpha must"),
    (lambda d: torch.add(torch.ones(2, device=d), 1, alpha=True), "Boolean alpha only supported"),
    (lambda d: torch.ones(2, device=d) << torch.ones(2, device=d), "not implemented for 'Float'|integral dtype"),
    (lambda d: torch.ones(2, device=d) & 1, "not implemented for 'Float'"),
    (lambda d: torch.tensor([1j], device=d) < 1, "not implemented for 'ComplexFloat'"),
    (lambda d: torch.maximum(torch.tensor([1j], device=d), torch.tensor([1j], device=d)), "for complex tensors"),
    (lambda d: torch.tensor([1j], device=d).clamp(0), "clamp is not supported for complex types"),
    (lambda d: torch.tensor([1j], device=d) // 2, "not implemented for 'ComplexFloat'|not supported"),
    (lambda d: torch.arange(3, device=d).to(torch.uint16) + torch.arange(3, device=d), "Promotion for uint16"),
    (lambda d: torch.mm(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d).double()), "dtype"),
    (lambda d: torch.dot(torch.ones(2, device=d), torch.ones(2, device=d).long()), "dtype"),
    (
        lambda d: torch.addcdiv(*[torch.arange(1, 3, device=d)] * 3),
        "Integer division with addcdiv is no longer supported",
    ),
    (lambda d: torch.lerp(torch.ones(2, device=d), torch.ones(2, device=d).double(), 0.5), "dtype"),
    (lambda d: torch.add(torch.ones(2, device=d), 1, out=torch.zeros(2, dtype=torch.long, device=d)), "can't be cast"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_the_cpu_refuses_is_refused_in_its_words(number: int) -> None:
    story, words = REFUSED[number]
    for device in ("cpu", "xla"):
        with pytest.raises(RuntimeError, match=words):
            story(device)


def test_gradients_have_the_dtype_of_what_they_are_gradients_of() -> None:
    gradients = []
    for device in ("cpu", "xla"):
        half = torch.full((2,), 1.5, dtype=torch.bfloat16, device=device, requires_grad=True)
        single = torch.full((2,), 3.0, device=device, requires_grad=True)
        double = torch.tensor(2.0, dtype=torch.float64, device=device, requires_grad=True)
        (half * single * double + torch.arange(2, device=device)).sum().backward()
        gradients.append([half.grad, single.grad, double.grad])
    for here, there in zip(*gradients, strict=True):
        assert here is not None
        assert there is not None
        assert here.dtype == there.dtype
        torch.testing.assert_close(there.cpu(), here)


def test_integers_divided_by_zero() -> None:
    # On the CPU that raises. Here, as on every accelerator, it is a value, whose use is the program's mistake: nothing
    # is raised, and whatever has no zero in it is right.
    x = torch.tensor([7, -7, 9], device="xla")
    quotient = x // torch.tensor([0, 2, 0], device="xla")
    assert quotient[1].item() == -4
    assert (x % torch.tensor([0, 4, 0], device="xla"))[1].item() == 1
    assert (x / 0).tolist() == [torch.inf, -torch.inf, torch.inf]
