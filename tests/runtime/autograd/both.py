"""Stories that are told twice, on the CPU and on xla, and must end alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import xlaprof.runtime as xr


def told_on_both(story: Callable[[str], Any]) -> Callable[[], None]:
    """A test from ``story(device)``: what it returns (tensors, numbers, text, in lists and tuples) is the same on both.

    And nothing of it was computed on the host in the device's place.
    """

    def test() -> None:
        torch.manual_seed(0)
        expected = story("cpu")
        before, _ = xr.metrics.totals()
        torch.manual_seed(0)
        alike(story("xla"), expected)
        after, _ = xr.metrics.totals()
        fallbacks = {name for name in after if name.startswith("aten::") and after[name] != before.get(name, 0)}
        assert fallbacks <= {"aten::_local_scalar_dense"}

    test.__name__ = story.__name__
    test.__doc__ = story.__doc__
    test.__module__ = story.__module__
    return test


def alike(got: Any, expected: Any) -> None:
    """Fail unless both are the same, but for where tensors are and what messages call it."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, torch.Tensor)
        torch.testing.assert_close(got.detach().cpu(), expected.detach().cpu(), rtol=1e-6, atol=1e-8, equal_nan=True)
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            alike(g, e)
    elif isinstance(expected, str):
        # types are called torch.DoubleTensor on the host, XLADoubleType on xla
        assert got.replace("XLADoubleType", "torch.DoubleTensor").replace("xla:0", "cpu") == expected
    else:
        assert got == expected


def numbers(*shape: int, device: str, seed: int = 0, grad: bool = False, dtype: torch.dtype = torch.float64) -> Any:
    """A tensor of normal numbers, the same on every device."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return made.to(device).requires_grad_(grad)


def refusal(call: Callable[[], Any]) -> str:
    """The message of the ``RuntimeError`` that ``call`` raises; empty if it raises none."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""
