"""Activations and their gradients, away from the middle: saturation, kinks, NaN, parameters read at run time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from .harness import check

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 1.5),
    "celu": lambda x: F.celu(x, 1.5),
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "logsigmoid": F.logsigmoid,
    "softplus": lambda x: F.softplus(x, 2.5, 10),
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.7),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "threshold": lambda x: F.threshold(x, 0.3, 5.5),
    "glu": lambda x: F.glu(x.reshape(7, 2), 1),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.25, requires_grad=True).to(x.dtype)),
    "logit": lambda x: torch.logit(x, 1e-3),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_and_backward(name: str, dtype: torch.dtype) -> None:
    values = [-100.0, -20.0, -3.0, -1.0, -0.3, -0.0, 0.0, 0.3, 0.7, 1.0, 3.0, 6.0, 20.0, 100.0]
    x = torch.tensor(values, dtype=dtype, requires_grad=True)

    def story() -> None:
        out = ACTIVATIONS[name](x)
        out.backward(torch.linspace(0.5, 1.5, out.numel()).reshape(out.shape).to(dtype))

    check(story)


def test_nan_goes_through() -> None:
    x = torch.tensor([math.nan, 1.0])

    def story() -> None:
        for name in ("relu", "gelu", "silu", "sigmoid", "tanh", "hardtanh", "leaky_relu", "elu", "softplus"):
            assert ACTIVATIONS[name](x)[0].isnan()

    check(story)


def test_integers_become_floats() -> None:
    def story() -> None:
        for fn in (torch.sigmoid, torch.tanh, torch.exp, torch.sqrt, torch.sin, torch.log, torch.erf, torch.reciprocal):
            fn(torch.tensor([1, 2, 3]))
            fn(torch.tensor([True, False]))

    check(story)
