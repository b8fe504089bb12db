"""Fourier transforms, there and back, under every normalization."""

from __future__ import annotations

import pytest
import torch

from .harness import check


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_and_their_gradients(norm: str) -> None:
    x = torch.randn(3, 4, 6, requires_grad=True)

    def story() -> None:
        half = torch.fft.rfftn(x, dim=(0, 2), norm=norm)
        whole = torch.fft.fft2(x, norm=norm)
        back = torch.fft.irfftn(half, s=(3, 6), dim=(0, 2), norm=norm)
        odd = torch.fft.irfft(half, n=5, norm=norm)
        torch.autograd.grad((back.sum() + odd.sum() + torch.fft.ifft(whole, norm=norm).abs().sum()), x)

    checker = check(story)
    assert {f"aten._fft_{kind}.default" for kind in ("r2c", "c2c", "c2r")} <= set(checker.checked)
