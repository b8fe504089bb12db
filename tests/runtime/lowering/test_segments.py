"""What is folded by pieces whose places are data: segments, bags, bins, alignments, random windows, runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from .harness import backward, check


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments_of_any_length(reduce: str) -> None:
    data = torch.tensor([[1.0, 2, 0], [3, 2, 0], [float("nan"), 2, 5], [4, -1, 2]], requires_grad=True)
    lengths, offsets = torch.tensor([2, 0, 1]), torch.tensor([0, 2, 2, 3])

    def story() -> None:
        backward(torch.segment_reduce(data, reduce, lengths=lengths, unsafe=True))
        backward(torch.segment_reduce(data, reduce, offsets=offsets))
        backward(torch.segment_reduce(data, reduce, lengths=lengths, unsafe=True, initial=2.0))
        columns, each = data.T.contiguous(), lengths.expand(3, 3).contiguous()
        backward(torch.segment_reduce(columns, reduce, lengths=each, axis=1, unsafe=True))

    checker = check(story)
    assert checker.checked["aten._segment_reduce_backward.default"] >= 4


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode: str) -> None:
    table = torch.randn(7, 3, requires_grad=True)
    # Only the largest is repeated: PyTorch's CPU kernel takes the frequency of a wrong row behind a repeated one.
    indices, offsets = torch.tensor([1, 2, 6, 5, 0, 6]), torch.tensor([0, 2, 2, 5])
    ends = torch.tensor([0, 2, 2, 6])
    weights = torch.rand(6, requires_grad=True)
    options: list[dict[str, Any]] = [
        {},
        {"padding_idx": 2},
        {"include_last_offset": True},
        *([{"scale_grad_by_freq": True}] if mode != "max" else []),
        *([{"per_sample_weights": weights}] if mode == "sum" else []),
    ]

    def loss(device: str, given: dict[str, Any]) -> Any:
        here = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
        starts = ends if "include_last_offset" in given else offsets
        out = F.embedding_bag(indices.to(device), table.to(device), starts.to(device), mode=mode, **here)
        return out, torch.autograd.grad(
            (out * out).sum(), [table, *([weights] if "per_sample_weights" in given else [])]
        )

    for given in options:
        torch.testing.assert_close(_host(loss("xla", given)), loss("cpu", given))


@pytest.mark.parametrize("dims", [2, 3])
def test_windows_at_random_places(dims: int) -> None:
    x = torch.randn((2, 3, *(7,) * dims), requires_grad=True)
    with torch.no_grad():
        x[0, 0, 2, 3] = float("nan")
    samples = torch.rand(2, 3, dims)
    pool = F.fractional_max_pool2d if dims == 2 else F.fractional_max_pool3d

    def story() -> None:
        for out in (3, 1):
            backward(pool(x, 2, output_size=out, _random_samples=samples, return_indices=True)[0])

    check(story)


def test_bins() -> None:
    x = torch.tensor([0.0, 0.1, 0.5, 1.0, 1.0, -3.0, 2.0, float("nan")])[:-1]

    def story() -> None:
        torch.histogram(x, 4)
        torch.histogram(x, 4, range=(0.0, 1.0), density=True)
        torch.histogram(x, torch.tensor([0.0, 0.1, 1.0]), weight=x)
        torch.histogram(torch.ones(3), 2)
        torch.histogramdd(x[:6].reshape(3, 2), [2, 3])
        torch.histogramdd(x[:6].reshape(3, 2), [torch.tensor([-3.0, 0.0, 1.0]), torch.tensor([0.0, 2.0])])

    check(story)


def test_the_most_frequent() -> None:
    values = torch.tensor([[3, 1, 1, 2, 2], [5, 5, 4, 5, 4], [1, 2, 3, 4, 5]])
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            there, place = values.to("xla").mode(dim, keepdim)
            expected = values.mode(dim, keepdim).values
            torch.testing.assert_close(there.cpu(), expected)
            place, expected = (t if keepdim else t.unsqueeze(dim) for t in (place.cpu(), expected))
            torch.testing.assert_close(values.gather(dim, place), expected)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("device_lengths", [False, True])
@pytest.mark.parametrize("in_a_row", [False, True])
def test_alignments_of_every_length(device_lengths: bool, in_a_row: bool) -> None:
    logits = torch.randn(6, 4, 5)
    inputs, lengths = torch.tensor([6, 4, 3, 2]), torch.tensor([3, 0, 2, 3])
    targets = torch.tensor([[1, 1, 2], [4, 4, 4], [3, 1, 2], [2, 2, 2]])
    if in_a_row:
        targets = torch.cat([row[:n] for row, n in zip(targets, lengths.tolist(), strict=True)])

    def loss(device: str, zero: bool) -> Any:
        x = logits.to(device).requires_grad_()
        sizes = [t.to(device) if device_lengths else t.tolist() for t in (inputs, lengths)]
        losses = F.ctc_loss(x.log_softmax(-1), targets.to(device), *sizes, reduction="none", zero_infinity=zero)
        return losses, torch.autograd.grad(losses[:3].sum() if not zero else losses.sum(), x)

    for zero in (False, True):
        torch.testing.assert_close(_host(loss("xla", zero)), loss("cpu", zero), equal_nan=True)


def test_rows_that_are_looked_up_and_too_long_are_shortened() -> None:
    here = nn.Embedding(6, 3, max_norm=1.0)
    there = nn.Embedding(6, 3, max_norm=1.0).to("xla")
    there.load_state_dict(here.state_dict())
    indices = torch.tensor([1, 1, 4])
    torch.testing.assert_close(there(indices.to("xla")).cpu(), here(indices))
    torch.testing.assert_close(there.weight.cpu(), here.weight)


def _host(result: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda t: t.detach().cpu(), result)
