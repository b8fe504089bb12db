"""Convolutions of every geometry, with the gradients of input, weight and bias."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as F
from jax import lax

from xlaprof.runtime.lowering.convolution import convolution, convolution_backward

from .harness import check

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 2},
    "dilation": {"dilation": 2, "padding": 1},
    "groups": {"groups": 2},
    "all at once": {"stride": 2, "padding": 2, "dilation": 2, "groups": 2},
}
#: every case in two dimensions, the richest in one and three; the rest with the sweeps
GEOMETRIES = [
    pytest.param(dims, case, marks=() if dims == 2 or case == "all at once" else pytest.mark.slow)
    for dims in (1, 2, 3)
    for case in CASES
]


def _both_ways(out: torch.Tensor) -> None:
    out.backward(torch.randn_like(out))


def _steps(x: Any, grad: Any, weight: Any, geometry: list[Any]) -> str:
    """What a convolution and its two gradients are made of."""
    steps = jax.make_jaxpr(
        lambda weight: (
            convolution(None, x, weight, None, *geometry),  # type: ignore[arg-type]
            convolution_backward(None, grad, x, weight, None, *geometry, [True, True, False])[:2],  # type: ignore[arg-type]
        )
    )
    return str(steps(weight))


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("dims", "case"), GEOMETRIES)
def test_convolution(dims: int, case: str) -> None:
    options = CASES[case]

    def story() -> None:
        x = torch.randn(2, 4, *(9, 8, 7)[:dims], requires_grad=True)
        w = torch.randn(6, 4 // options.get("groups", 1), *(3, 2, 3)[:dims], requires_grad=True)
        b = torch.randn(6, requires_grad=True)
        _both_ways((F.conv1d, F.conv2d, F.conv3d)[dims - 1](x, w, b, **options))

    assert check(story).checked["aten.convolution_backward.default"] == 1


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("dims", "case"), GEOMETRIES)
def test_transposed_convolution_with_output_padding(dims: int, case: str) -> None:
    options = CASES[case]
    output_padding = 1 if options.get("stride", 1) > 1 or options.get("dilation", 1) > 1 else 0

    def story() -> None:
        x = torch.randn(2, 4, *(5, 4, 3)[:dims], requires_grad=True)
        w = torch.randn(4, 6 // options.get("groups", 1), *(3, 4, 3)[:dims], requires_grad=True)
        b = torch.randn(6, requires_grad=True)
        conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
        _both_ways(conv(x, w, b, output_padding=output_padding, **options))

    assert check(story).checked["aten.convolution_backward.default"] == 1


@pytest.mark.one_in(8)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_few_windows_of_a_large_kernel_are_a_product(dims: int, transposed: bool) -> None:
    """XLA on a CPU would first reorder the kernel, which takes up to ninety times as long as the product."""
    spatial, size = (2, 3, 2)[:dims], (2, 3, 1)[:dims]
    convolutions = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d)}
    conv = convolutions.get(dims, (F.conv3d, F.conv_transpose3d))[transposed]
    inputs, outputs = (40, 3) if transposed else (3, 40)

    def story() -> None:
        for options in ({}, {"stride": 2}, {"padding": 1}, {"dilation": 2, "padding": 1}, {"stride": 3, "padding": 1}):
            w = torch.randn(40, 3, *size, requires_grad=True)
            x = torch.randn(1, inputs, *(n + 1 for n in spatial), requires_grad=True)
            _both_ways(conv(x, w, torch.randn(outputs, requires_grad=True), **options))

    assert check(story).checked["aten.convolution_backward.default"] == 5

    x, grad = jnp.ones((1, 3, *spatial)), jnp.ones((1, 40, *(n - k + 1 for n, k in zip(spatial, size, strict=True))))
    if transposed:
        x, grad = grad, x
    geometry = [[1] * dims, [0] * dims, [1] * dims, transposed, [0] * dims, 1]
    steps = _steps(x, grad, jnp.ones((40, 3, *size)), geometry)
    assert "dot_general" in steps
    assert "conv_general_dilated" not in steps


@pytest.mark.one_in(8)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_are_convolutions_that_xla_has_fast_kernels_for(dims: int, groups: int, transposed: bool) -> None:
    """On the CPU others take ten to forty times as long: weights' gradients over spread inputs, or by groups."""
    x, grad = jnp.ones((2, 4, *[8] * dims)), jnp.ones((2, 4, *[4] * dims))
    weight = jnp.ones((4, 4 // groups, *[4] * dims))
    if transposed:
        x, grad = grad, x
    geometry = [[2] * dims, [1] * dims, [1] * dims, transposed, [0] * dims, groups]

    def convolutions(mask: list[bool]) -> list[dict[str, Any]]:
        def gradient(*arrays: Any) -> Any:
            return convolution_backward(None, *arrays, None, *geometry, mask)  # type: ignore[arg-type]

        steps = jax.make_jaxpr(gradient)(grad, x, weight).eqns
        return [step.params for step in steps if step.primitive is lax.conv_general_dilated_p]

    of_weight = convolutions([False, True, False])
    assert len(of_weight) == (groups == 1)  # or else products of matrices
    assert all(step["lhs_dilation"] == (1,) * dims and step["batch_group_count"] == 1 for step in of_weight)
    (of_input,) = convolutions([True, False, False])
    assert dims < 3 or of_input["lhs_dilation"] == (1, 1, 1)
    assert transposed is (of_input["window_strides"] == (2,) * dims)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_depthwise_convolutions_are_sums_over_the_kernel(dims: int, transposed: bool) -> None:
    """XLA on a CPU has no fast kernel for a group per channel: the sums took up to a hundred times less."""
    convolutions = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d)}
    conv = convolutions.get(dims, (F.conv3d, F.conv_transpose3d))[transposed]
    size = (3, 2, 2)[:dims]

    def story() -> None:
        for per_channel in (1, 2):
            for options in ({}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 3}):
                shape = (4, per_channel) if transposed else (4 * per_channel, 1)
                w = torch.randn(*shape, *size, requires_grad=True)
                x = torch.randn(2, 4, *(7, 6, 5)[:dims], requires_grad=True)
                _both_ways(conv(x, w, torch.randn(4 * per_channel, requires_grad=True), groups=4, **options))

    assert check(story).checked["aten.convolution_backward.default"] == 6

    x, grad = jnp.ones((2, 4, *[8] * dims)), jnp.ones((2, 4, *(9 - n for n in size)))
    if transposed:
        x, grad = grad, x
    geometry = [[1] * dims, [0] * dims, [1] * dims, transposed, [0] * dims, 4]
    assert "conv_general_dilated" not in _steps(x, grad, jnp.ones((4, 1, *size)), geometry)
    large = (70, 1, 1)[:dims]  # so many terms are long to compile
    x = jnp.ones((2, 4, *[80] * dims))
    if not transposed:
        assert "conv_general_dilated" in str(
            jax.make_jaxpr(lambda w: convolution(None, x, w, None, *geometry))(jnp.ones((4, 1, *large)))
        )


def test_uneven_geometry_and_depthwise() -> None:
    def story() -> None:
        x = torch.randn(1, 6, 11, 9, requires_grad=True)
        _both_ways(F.conv2d(x, torch.randn(12, 1, 5, 3), stride=(3, 2), padding=(0, 4), dilation=(2, 1), groups=6))
        w = torch.randn(6, 2, 3, 2, requires_grad=True)
        out = F.conv_transpose2d(x, w, stride=(3, 2), padding=(2, 1), output_padding=(2, 1), dilation=(1, 2), groups=3)
        _both_ways(out)
        F.conv2d(torch.randn(2, 5, 5), torch.randn(3, 2, 5, 5))  # no batch dimension
        F.conv1d(torch.randn(0, 2, 8), torch.randn(3, 2, 3))  # an empty batch

    check(story)


def test_only_the_gradients_asked_for() -> None:
    def story() -> None:
        x, w = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
        grad = torch.randn(2, 4, 4, 4)
        for mask in ([True, False, False], [False, True, False], [True, True, False]):
            torch.ops.aten.convolution_backward(grad, x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask)

    check(story)


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float16, marks=pytest.mark.slow), torch.bfloat16])
def test_other_precisions_keep_long_sums_exact(dtype: torch.dtype) -> None:
    """2,304 products of about one: a float16 accumulator would lose the last two digits."""

    def story() -> None:
        x = (torch.rand(1, 256, 6, 6) + 0.5).to(dtype).requires_grad_()
        w = (torch.rand(8, 256, 3, 3) / 256).to(dtype).requires_grad_()
        out = F.conv2d(x, w)
        out.backward(torch.ones_like(out))
        x = (torch.rand(1, 4, 48, 48) + 0.5).to(dtype).requires_grad_()
        w = (torch.rand(4, 1, 7, 7) / 49).to(dtype).requires_grad_()
        out = F.conv2d(x, w, groups=4)
        out.backward(torch.ones_like(out))

    check(story)
