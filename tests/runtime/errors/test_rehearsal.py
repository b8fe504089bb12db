"""Stand-ins on the host for the tensors of a call: whatever memory they share, they are ones, or zeros of integers."""

from __future__ import annotations

import pytest
import torch

import xlaprof.runtime  # noqa: F401
from xlaprof.runtime.shapes.rehearse import _StandIns


@pytest.mark.parametrize("integers", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.bool])
def test_a_view_of_more_of_a_tensor_has_no_number_that_nobody_wrote(dtype: torch.dtype, integers: int) -> None:
    """Lengths that are two rows of one tensor were read beyond the first, where memory holds whatever was there."""
    x = torch.zeros(4096, device="xla").to(dtype)
    standins = _StandIns(limit=1 << 20, integers=integers)
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
