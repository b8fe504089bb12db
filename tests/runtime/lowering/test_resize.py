"""Resampling, padding and sliding blocks, and their gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from .harness import check

MODES = [("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 2), ("linear", 1), ("bilinear", 2)]
MODES += [("trilinear", 3), ("bicubic", 2)]


def _both_ways(out: torch.Tensor) -> None:
    out.backward(torch.randn_like(out))


@pytest.mark.parametrize(
    ("mode", "dims"), [pytest.param(*mode, marks=[pytest.mark.slow] * (mode[1] == 3)) for mode in MODES]
)
def test_images_grow_and_shrink(mode: str, dims: int) -> None:
    aligns = (False,) if mode.startswith("nearest") else (False, True)

    def story() -> None:
        x = torch.randn(2, 2, *(5, 6, 4)[:dims], requires_grad=True)
        for align in aligns:
            option = {"align_corners": align} if len(aligns) > 1 else {}
            for size in ((9, 3, 8), (5, 1, 2)):
                _both_ways(F.interpolate(x, size[:dims], mode=mode, **option))
            _both_ways(F.interpolate(x, scale_factor=1.7, mode=mode, **option))
            _both_ways(F.interpolate(x, scale_factor=0.6, mode=mode, recompute_scale_factor=True, **option))

    check(story)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiasing(mode: str) -> None:
    def story() -> None:
        x = torch.randn(1, 2, 40, 23, requires_grad=True)
        for size, align in itertools.product(((7, 5), (50, 9)), (False, True)):
            _both_ways(F.interpolate(x, size, mode=mode, antialias=True, align_corners=align))

    check(story)


def test_one_pixel_read_by_many_and_large_sizes_round_as_in_pytorch() -> None:
    def story() -> None:
        x = torch.randn(1, 1, 1, 2, requires_grad=True)
        _both_ways(F.interpolate(x, (40, 50), mode="bilinear"))
        _both_ways(F.interpolate(x, (40, 50)))
        F.interpolate(torch.arange(1000.0)[None, None], 937)
        F.interpolate(torch.arange(1000.0)[None, None], scale_factor=1.3)
        F.interpolate(torch.randint(0, 255, (1, 3, 5, 5), dtype=torch.uint8), (9, 8))

    check(story)


def test_infinite_pixels_stay_where_they_are() -> None:
    def story() -> None:
        x = torch.zeros(1, 1, 4, 4)
        x[0, 0, 1, 1] = torch.inf
        F.interpolate(x, (6, 6))
        F.interpolate(x, (7, 7), mode="bilinear", align_corners=True)

    check(story)


@pytest.mark.slow  # in one, two and three dimensions, both ways
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding(mode: str) -> None:
    def story() -> None:
        for dims in (2, 3):
            x = torch.randn(2, 2, *(4, 5, 6)[:dims], requires_grad=True)
            _both_ways(F.pad(x, (2, 3, 1, 2, 3, 0)[: 2 * dims], mode=mode))
        _both_ways(F.pad(torch.randn(2, 5, 6, requires_grad=True), (-1, 2, 2, -2), mode=mode))

    check(story)


def test_blocks_and_shuffles() -> None:
    def story() -> None:
        x = torch.randn(2, 4, 7, 6, requires_grad=True)
        blocks = F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 2), stride=(2, 1))
        _both_ways(blocks)
        _both_ways(
            F.fold(blocks.detach().requires_grad_(), (7, 6), (3, 2), dilation=(1, 2), padding=(1, 2), stride=(2, 1))
        )
        F.unfold(x[0], 2)
        shuffled = F.pixel_shuffle(x, 2)
        F.pixel_unshuffle(shuffled, 2)
        F.channel_shuffle(x, 2)

    check(story)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("padding", ["zeros", pytest.param("border", marks=pytest.mark.slow), "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", pytest.param("bicubic", marks=pytest.mark.slow)])
def test_sampling_inside_and_outside_the_image(mode: str, padding: str) -> None:
    def story() -> None:
        for align in (False, True):
            x = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
            grid = (torch.rand(1, 3, 4, 2, dtype=torch.float64) * 5 - 2.5).requires_grad_()
            _both_ways(F.grid_sample(x, grid, mode, padding, align))
            if mode != "bicubic":
                x = torch.randn(1, 2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
                grid = (torch.rand(1, 2, 3, 2, 3, dtype=torch.float64) * 5 - 2.5).requires_grad_()
                _both_ways(F.grid_sample(x, grid, mode, padding, align))

    check(story)
