"""``torch_xla.experimental.custom_kernel``: the kernels' results, and libraries that import them by name."""

from __future__ import annotations

import pytest
import torch

import xlaprof.torch_xla
from xlaprof.torch_xla.experimental.custom_kernel import flash_attention

assert xlaprof.torch_xla


def scores(q: torch.Tensor, k: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.einsum("bhqd,bhkd->bhqk", q, k) * scale


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("how", ["plain", "causal", "segments", "bias", "all"])
def test_flash_attention_is_the_softmax_of_the_scores(how: str, scale: float) -> None:
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 3, 6, 4, generator=generator) for _ in range(3))
    bias = torch.randn(2, 3, 6, 6, generator=generator)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 2, 2, 2, 2]])
    expected = scores(q, k, scale)
    options: dict[str, object] = {"sm_scale": scale}
    if how in ("bias", "all"):
        options["ab"] = bias.to("xla")
        expected = expected + bias
    if how in ("segments", "all"):
        options |= {"q_segment_ids": ids.to("xla"), "kv_segment_ids": ids.to("xla")}
        expected = expected.masked_fill(ids[:, None, :, None] != ids[:, None, None, :], float("-inf"))
    if how in ("causal", "all"):
        options["causal"] = True
        expected = expected.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), float("-inf"))
    result = flash_attention(*(tensor.to("xla") for tensor in (q, k, v)), **options)  # type: ignore[arg-type]
    torch.testing.assert_close(result.cpu(), expected.softmax(-1) @ v, rtol=1e-5, atol=1e-5)
