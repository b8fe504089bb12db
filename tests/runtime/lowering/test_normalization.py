"""Normalisation: statistics, running statistics, and the gradients through them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from xlaprof.runtime.lowering.registry import LOWERINGS, Aval, Ctx

from .harness import check


def _both_ways(out: torch.Tensor) -> None:
    out.backward(torch.randn_like(out))


# float32 is far from zero, where a variance taken as the mean of squares less the square of the mean would be wrong;
# bfloat16 stays where neighbours are finer than the deviations: PyTorch keeps the mean itself in bfloat16.
@pytest.mark.parametrize(("dtype", "mean"), [(torch.float32, 100), (torch.bfloat16, 1)])
def test_layer_norm(dtype: torch.dtype, mean: float) -> None:
    def story() -> None:
        x = (torch.randn(3, 4, 6) * 3 + mean).to(dtype).requires_grad_()
        w, b = (torch.randn(4, 6).to(dtype).requires_grad_() for _ in range(2))
        _both_ways(F.layer_norm(x, (4, 6), w, b))
        _both_ways(F.layer_norm(x, (6,), w[0]))
        _both_ways(F.layer_norm(x, (6,), eps=0.1))

    assert check(story).checked["aten.native_layer_norm_backward.default"] == 3


def test_layer_norm_gives_only_the_gradients_asked_for() -> None:
    def story() -> None:
        x, w = torch.randn(5, 6), torch.randn(6)
        out, mean, rstd = torch.ops.aten.native_layer_norm(x, [6], w, None, 1e-5)
        for mask in ([True, False, False], [False, True, False], [True, True, False]):
            torch.ops.aten.native_layer_norm_backward(out, x, [6], mean, rstd, w, None, mask)

    check(story)


@pytest.mark.parametrize("eps", [None, 1e-3])
def test_fused_rms_norm(eps: float | None) -> None:
    @torch.inference_mode()  # elsewhere PyTorch takes the operator apart before the device sees it
    def story() -> None:
        torch.ops.aten._fused_rms_norm(torch.randn(3, 4, 6), [6], torch.randn(6), eps)
        torch.ops.aten._fused_rms_norm(torch.randn(3, 4, 6), [4, 6], None, eps)

    assert check(story).checked["aten._fused_rms_norm.default"] == 2


def test_the_gradient_of_rms_norm_is_that_of_its_formula() -> None:
    """The CPU has no kernel for the fused backward, so the composite one is the reference."""
    x, w, grad = torch.randn(3, 4, 6, requires_grad=True), torch.randn(6, requires_grad=True), torch.randn(3, 4, 6)
    F.rms_norm(x, (6,), w, 1e-3).backward(grad)
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3)
    tensors = [jnp.asarray(t.detach().numpy()) for t in (grad, x, rstd, w)]
    ctx = Ctx((Aval((3, 4, 6), torch.float32), Aval((6,), torch.float32)))
    lowering = LOWERINGS["aten._fused_rms_norm_backward.default"]
    of_x, of_w = lowering(ctx, *tensors[:2], (6,), *tensors[2:], (True, True))
    torch.testing.assert_close(torch.from_numpy(np.array(of_x)), x.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(np.array(of_w)), w.grad, rtol=1e-5, atol=1e-5)
    assert lowering(ctx, *tensors[:2], (6,), *tensors[2:], (False, False)) == (None, None)


def test_batch_norm_returns_the_running_statistics_it_does_not_write() -> None:
    def story() -> None:
        for shape in ((6, 3), (2, 3, 5), (2, 3, 4, 5)):
            x = torch.randn(shape) * 2 + 1
            w, b, mean, var = torch.randn(3), torch.randn(3), torch.randn(3), torch.rand(3)
            args = (x, w, b, mean, var)
            torch.ops.aten._native_batch_norm_legit_functional(*args, True, 0.3, 1e-5)
            torch.ops.aten._native_batch_norm_legit_functional(*args, False, 0.3, 1e-5)
            torch.ops.aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.3, 1e-5)
            torch.ops.aten._native_batch_norm_legit_no_training(*args, 0.3, 1e-5)

    assert check(story).checked["aten._native_batch_norm_legit_functional.default"] == 6


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_gradients(training: bool) -> None:
    def story() -> None:
        x, w, b = (torch.randn(s, requires_grad=True) for s in ((4, 3, 5, 2), (3,), (3,)))
        _both_ways(F.batch_norm(x, torch.randn(3), torch.rand(3) + 0.1, w, b, training))
        _both_ways(F.batch_norm(x, torch.randn(3), torch.rand(3) + 0.1, training=training))

    assert check(story).checked["aten.native_batch_norm_backward.default"] == 2


def test_group_and_instance_norm() -> None:
    def story() -> None:
        x, w, b = (torch.randn(s, requires_grad=True) for s in ((2, 6, 4, 3), (6,), (6,)))
        _both_ways(F.group_norm(x, 3, w, b))
        _both_ways(F.group_norm(x, 1))
        _both_ways(F.group_norm(x[:, :, 0, 0].detach().requires_grad_(), 2))
        _both_ways(F.instance_norm(x, weight=w, bias=b))

    assert check(story).checked["aten.native_group_norm_backward.default"] >= 2


NORMS = {
    "layer": (lambda: nn.LayerNorm(8), (2, 3, 8)),
    "instance": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 3, 3)),
    "group": (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 3)),
}


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_trained_in_half_precision(name: str, weights: torch.dtype) -> None:
    """Their statistics are float32 here, and the CPU's kernel of the gradient would take its own only."""
    make, shape = NORMS[name]
    x, w = torch.randn(shape, dtype=torch.bfloat16), torch.randn(shape)  # a sum of squares hardly depends on x
    gradients = []
    for device in ("cpu", "xla"):
        there = x.clone().to(device).requires_grad_()
        (make().to(device, weights)(there).float() * w.to(device)).sum().backward()
        assert there.grad is not None
        gradients.append(there.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0.1, atol=0.02)
