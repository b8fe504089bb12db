"""Order: stable in both directions, NaN above everything, the most negative integers in their place."""

from __future__ import annotations

import pytest
import torch

from .harness import check

NAN, INF = float("nan"), float("inf")
MIN, MAX = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max


def test_equal_values_keep_their_order_both_ways() -> None:
    def story() -> None:
        x = torch.tensor([[3, 1, 3, 1, 2], [0, 0, 5, 5, 0]])
        for dim in (0, 1):
            for descending in (False, True):
                x.sort(dim=dim, descending=descending, stable=True)
                x.float().sort(dim=dim, descending=descending, stable=True)
        torch.tensor([0.0, -0.0, 0.0, -1.0]).sort(stable=True)
        (x > 1).sort(stable=True)
        torch.tensor(4.0).sort()

    check(story)


def test_nan_is_the_largest_whatever_its_sign() -> None:
    def story() -> None:
        x = torch.tensor([1.0, NAN, INF, -INF, 0.5])
        for descending in (False, True):
            x.sort(descending=descending, stable=True)
            for k in (1, 3, 5):
                x.topk(k, largest=descending)
                (-x).topk(k, largest=descending)
        x.kthvalue(2)
        x.kthvalue(5)

    check(story)


@pytest.mark.slow
def test_topk_along_any_dimension_of_any_type() -> None:
    def story() -> None:
        x = torch.randperm(60).reshape(3, 4, 5)
        for t in (x, x.float(), x.half(), x.bfloat16(), x.double(), x.to(torch.uint8)):
            for dim in (0, -1, 1):
                for largest in (True, False):
                    t.topk(2, dim, largest)
        torch.tensor([5, MIN, MAX, 0, -1]).topk(3, largest=False)
        torch.tensor(2.0).topk(1)
        torch.randn(2, 3).topk(0)
        x.float().kthvalue(2, 1, keepdim=True)
        y = torch.randperm(12).float().reshape(3, 4).requires_grad_()
        y.topk(2).values.sum().backward()
        y.msort().sum().backward()

    check(story)
