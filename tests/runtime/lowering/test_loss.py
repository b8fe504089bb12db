"""Softmax and losses: ignored targets, weights, smoothing, infinities, and every reduction."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import xlaprof.runtime  # noqa: F401  (the device)

from .harness import check

REDUCTIONS = ("none", "mean", "sum")


def _both_ways(out: torch.Tensor) -> None:
    out.backward(torch.rand_like(out))


def test_softmax_of_large_small_and_missing_values() -> None:
    def story() -> None:
        inf = torch.inf
        x = torch.tensor([[1e4, -1e4, 0.0], [-inf, 1.0, -inf], [-inf, -inf, -inf], [torch.nan, 1.0, 2.0]])
        for dim in (0, -1):
            torch.softmax(x, dim)
            torch.log_softmax(x, dim)
            torch._safe_softmax(x, dim)
        torch.softmax(torch.tensor(3.0), 0)
        torch.softmax(torch.zeros(0, 3), 0)
        torch.softmax(torch.zeros(2, 0), 1)
        y = torch.randn(3, 50, dtype=torch.bfloat16, requires_grad=True)
        _both_ways(torch.softmax(y, 1))
        _both_ways(torch.log_softmax(y, 1))

    check(story)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(reduction: str) -> None:
    def story() -> None:
        x, weight = torch.randn(6, 5, requires_grad=True), torch.rand(5)
        target = torch.tensor([0, 4, -100, 2, 2, 1])
        _both_ways(F.cross_entropy(x, target, reduction=reduction))
        _both_ways(F.cross_entropy(x, target, weight, reduction=reduction))
        _both_ways(F.cross_entropy(x, target.abs() % 5, weight, ignore_index=2, reduction=reduction))
        _both_ways(F.cross_entropy(x, target, weight, label_smoothing=0.1, reduction=reduction))
        _both_ways(F.cross_entropy(x[0], target[0], weight, reduction=reduction))
        image = torch.randn(2, 5, 3, 4, requires_grad=True)
        pixels = torch.randint(0, 5, (2, 3, 4))
        pixels[0, 1] = -100
        _both_ways(F.cross_entropy(image, pixels, weight, reduction=reduction))
        _both_ways(F.nll_loss(image, pixels, reduction=reduction))

    checked = check(story).checked
    assert checked["aten.nll_loss_backward.default"] == 5
    assert checked["aten.nll_loss2d_backward.default"] == 2


def test_nothing_but_ignored_targets_and_an_ignored_infinity() -> None:
    def story() -> None:
        x = torch.randn(2, 3, requires_grad=True)
        _both_ways(F.nll_loss(x, torch.tensor([-100, -100])))  # 0 / 0, as in PyTorch
        _both_ways(F.nll_loss(x, torch.tensor([-100, -100]), reduction="sum"))
        certain = torch.tensor([[-torch.inf, 0.0], [0.0, -torch.inf]], requires_grad=True)
        _both_ways(F.nll_loss(certain, torch.tensor([-100, 0])))

    check(story)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_regression_losses(reduction: str) -> None:
    def story() -> None:
        x, y = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5)
        _both_ways(F.mse_loss(x, y, reduction=reduction))
        _both_ways(F.mse_loss(x.to(torch.bfloat16), y.to(torch.bfloat16), reduction=reduction))
        for bound in (0.5, 1.0, 2.5):
            _both_ways(F.smooth_l1_loss(x, y, reduction=reduction, beta=bound))
            _both_ways(F.huber_loss(x, y, reduction=reduction, delta=bound))
        exact = x.detach().clone().requires_grad_()
        _both_ways(F.smooth_l1_loss(exact, x.detach(), reduction=reduction))

    check(story)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_losses(reduction: str) -> None:
    def story() -> None:
        logit, y, w = torch.randn(4, 5, requires_grad=True), torch.rand(4, 5), torch.rand(5)
        wide = (logit * 60).detach().requires_grad_()
        for x in (logit, wide):
            _both_ways(F.binary_cross_entropy_with_logits(x, y, reduction=reduction))
            _both_ways(F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w * 3, reduction=reduction))
        certain = torch.tensor([0.0, 1.0, 0.3], requires_grad=True)
        _both_ways(F.binary_cross_entropy(certain, torch.tensor([1.0, 0.0, 0.5]), reduction=reduction))
        _both_ways(F.binary_cross_entropy(torch.sigmoid(logit), y, w.expand(4, 5), reduction=reduction))
        _both_ways(F.soft_margin_loss(logit, y.sign(), reduction=reduction))

    check(story)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_targets_of_the_multilabel_margin_loss_end_at_the_first_minus_one(reduction: str) -> None:
    def story() -> None:
        x = torch.randn(4, 3, requires_grad=True)
        target = torch.tensor([[0, 2, -1], [1, -1, 0], [2, 1, 0], [-1, 1, 2]])
        _both_ways(F.multilabel_margin_loss(x, target, reduction=reduction))
        _both_ways(F.multilabel_margin_loss(x[1], target[1], reduction=reduction))

    check(story)


def test_a_loss_in_chunks_adds_up_16_bit_floats_in_float32() -> None:
    module = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options", reason="it came with torch 2.13")
    options = module.LinearCrossEntropyOptions(batch_chunk_size=2)
    hidden, vocabulary = (torch.randn(*shape, dtype=torch.bfloat16) for shape in ((8, 16), (1000, 16)))
    target = torch.arange(8) * 100
    losses = [
        F.linear_cross_entropy(*(t.to(device) for t in (hidden, vocabulary, target)), options=options)
        for device in ("cpu", "xla")
    ]
    truth = F.cross_entropy(hidden.double() @ vocabulary.double().T, target)
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=2**-8)  # one unit in the last place of bfloat16
    assert losses[1].item() == pytest.approx(truth.item(), rel=2**-7)
