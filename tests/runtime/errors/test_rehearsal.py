"""Stand-ins on the host for the tensors of a call: whatever memory they share, they are ones, or zeros of integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from xlaprof.runtime.shapes import rehearse as rehearsal
from xlaprof.runtime.shapes.rehearse import _StandIns


@pytest.mark.parametrize("integers", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.bool])
def test_a_view_of_more_of_a_tensor_has_no_number_that_nobody_wrote(dtype: torch.dtype, integers: int) -> None:
    """Lengths that are two rows of one tensor were read beyond the first, where memory holds whatever was there."""
    x = torch.zeros(4096, device="xla").to(dtype)
    standins = _StandIns(integers)
    first, rest, none = (standins.of(part) for part in (x[:3], x[3:], x[7:7]))
    number = 1 if dtype.is_floating_point else integers
    assert first.tolist() == [number] * 3
    assert rest.tolist() == [number] * 4093
    assert none.numel() == 0
    rest.fill_(1 - integers)
    assert first.tolist() == [number] * 3
    assert standins.of(x).tolist()[:4] == [number] * 3 + [1 - integers], "they share memory as the call's own do"


def test_lengths_that_share_a_tensor_are_read_as_zeros() -> None:
    lengths = torch.tensor([[9, 9], [3, 3]], device="xla")
    x, targets = torch.zeros(9, 2, 4, device="xla").log_softmax(-1), torch.ones(1, 2, 3, device="xla").long()
    for _ in range(20):
        with pytest.raises(RuntimeError, match="Expected 1 to 2 dimensions, but got 3-dimensional tensor"):
            torch.ops.aten._ctc_loss.Tensor(x, targets, *lengths)


def test_lengths_on_the_device_are_refused_by_no_numbers_that_stand_in_for_them() -> None:
    """Labels one after the other have to be as many as all lengths say; stand-ins say nought, or one each."""
    x = torch.randn(9, 2, 4).log_softmax(-1)
    labels, steps, lengths = torch.tensor([1, 2, 3, 1, 2]), torch.tensor([9, 9]), torch.tensor([3, 2])
    expected = F.ctc_loss(x, labels, steps, lengths)
    told = F.ctc_loss(*(tensor.to("xla") for tensor in (x, labels, steps, lengths)))
    torch.testing.assert_close(told.cpu(), expected)
    rows = torch.arange(12.0).reshape(6, 2)
    torch.testing.assert_close(
        torch.segment_reduce(rows.to("xla"), "sum", lengths=torch.tensor([2, 4], device="xla")).cpu(),
        torch.segment_reduce(rows, "sum", lengths=torch.tensor([2, 4])),
    )
    masked = rows.to("xla")
    masked[masked > 3] = torch.arange(8.0, device="xla")
    assert masked.cpu().flatten()[4:].tolist() == list(range(8)), "a mask of stand-ins selects nothing"


def test_a_call_with_a_large_result_is_not_made_on_the_host() -> None:
    """Thirty-two terabytes of ones: only who reads them needs them."""
    assert torch.ones(1 << 43, device="xla").shape == (1 << 43,)


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda x: x.softmax(-1), torch.int64),
        (lambda x: F.mish(x), torch.int32),
        (lambda x: F.celu_(x), torch.bool),
        (lambda x: x.frac(), torch.int64),
        (lambda x: x.argsort(), torch.complex64),
        (lambda x: x.trace(), torch.bool),
        (lambda x: F.huber_loss(x, x), torch.int64),
        (lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"), torch.bool),
        (lambda x: F.adaptive_avg_pool2d(x[None, None].transpose(2, 3), 256), torch.complex64),
    ],
)
def test_dtypes_of_large_calls_are_refused_as_on_the_cpu(
    call: Callable[[torch.Tensor], object], dtype: torch.dtype
) -> None:
    refused = []
    for device in ("cpu", "xla"):
        with pytest.raises(RuntimeError) as error:
            call(torch.zeros(512, 1024, dtype=dtype, device=device))
        refused.append((error.type, str(error.value)))
    assert refused[0] == refused[1]


def test_a_large_call_is_cut_down_once_whatever_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []

    def rehearse(*call: object, **how: object) -> bool:
        made.append(how)
        return real(*call, **how)  # type: ignore[arg-type]

    real = rehearsal.rehearse
    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setattr(rehearsal, "_taken", set())
    for rows in (1000, 1001, 1002):
        F.softsign(torch.zeros(rows, 1024, device="xla"))
        F.hardshrink(torch.zeros(rows, 1024, device="xla"), 0.5 + rows)
    assert {how["most"] for how in made} == {8}
    assert len(made) <= 4, "hardshrink is one operator, softsign three"


def test_what_is_cut_down_keeps_no_size_but_dimensions_and_their_order() -> None:
    images = torch.zeros(64, 3, 1000, 1, dtype=torch.int64, device="xla")
    standins = _StandIns(integers=1, most=8)
    small, turned = standins.of(images), standins.of(images.transpose(1, 2))
    assert small.shape == (8, 3, 8, 1)
    assert small.stride() == (24, 8, 1, 1)
    assert turned.shape == (8, 8, 3, 1)
    assert turned.stride() == (24, 1, 8, 1)
    assert small.unique().tolist() == [1]
    assert standins.of(images) is small, "a tensor that is given twice is one"
    far_apart = torch.zeros(1 << 40, device="xla")[:: 1 << 37]
    assert standins.of(far_apart).untyped_storage().nbytes() == 32
    assert [standins.of(number) for number in (1000, -7, 3, True, 0.5)] == [8, -7, 3, True, 0.5]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: x.bool().mvlgamma(3), "The input tensor may not be a boolean tensor."),
        (lambda x: x.bool().dist(x.bool()), "with two bool tensors is not supported"),
        (lambda x: torch.linspace(x[0].to(torch.complex64), 2.0, 4, dtype=torch.float32), "linspace()"),
        (
            lambda x: F.embedding_bag(x.long(), x.bool().expand(3, 3), x.long()[:1]),
            "Expected tensor for argument #1 'weight'",
        ),
    ],
)
def test_what_meta_kernels_and_decompositions_take_is_refused_as_on_the_cpu(
    call: Callable[[torch.Tensor], object], said: str
) -> None:
    for device in ("cpu", "xla"):
        with pytest.raises(RuntimeError) as refused:
            call(torch.zeros(3, device=device))
        assert said in str(refused.value)


def test_what_the_cpu_takes_is_taken() -> None:
    """The functional form refuses the first, a check of ours the second; PyTorch takes both."""
    none, out = torch.zeros(0, device="xla"), torch.ones(2, 3, device="xla")
    with pytest.warns(UserWarning, match="was resized"):
        told = torch.min(none, out=out)
    assert told is out
    assert out.shape == ()
    bounds = torch.tensor([False, True])
    for values in (torch.rand(3), torch.tensor([1, 2])):
        assert torch.bucketize(values.to("xla"), bounds.to("xla")).tolist() == torch.bucketize(values, bounds).tolist()
