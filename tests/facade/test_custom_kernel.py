"""``torch_xla.experimental.custom_kernel``: the kernels' results, and libraries that import them by name."""

from __future__ import annotations

import functools
from typing import Any

import jax
import pytest
import torch
from jax.experimental import pallas
from runtime.counting import counted

import xlaprof.torch_xla
from xlaprof.torch_xla.experimental.custom_kernel import (
    XLA_LIB,
    FlashAttention,
    flash_attention,
    make_kernel_from_pallas,
)

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


def test_libraries_add_operators_of_their_own_written_in_jax() -> None:
    import torch_xla.core.xla_builder as xb
    import torch_xla.core.xla_model as xm

    assert xm.XLA_LIB is XLA_LIB
    XLA_LIB.define("story_update(Tensor new, Tensor cache, int at) -> Tensor")

    def update(new: jax.Array, cache: jax.Array, *, at: int) -> jax.Array:
        return jax.lax.dynamic_update_slice(cache, new, (at, 0))

    @torch.library.impl(XLA_LIB, "story_update", "XLA")
    def _(new: torch.Tensor, cache: torch.Tensor, at: int) -> torch.Tensor:
        made: torch.Tensor = xb.call_jax(update, (new, cache), {"at": at})
        return made

    @torch.library.impl(XLA_LIB, "story_update", "CompositeExplicitAutograd")
    def _(new: torch.Tensor, cache: torch.Tensor, at: int) -> torch.Tensor:
        return torch.empty_like(cache)

    cache, new = torch.zeros(4, 2, device="xla"), torch.ones(1, 2, device="xla")
    assert torch.ops.xla.story_update(new, cache, 2).sum(1).tolist() == [0, 0, 2, 0]
    fast = torch.compile(lambda new, cache: torch.ops.xla.story_update(new, cache, 1) * 3, backend="openxla")
    xm.mark_step()  # whatever others left to be computed
    with counted() as counts:
        found = fast(new, cache)
    assert counts.runs == 1
    assert found.sum(1).tolist() == [0, 6, 0, 0]


def test_a_kernel_of_the_user_s_own_is_an_operation() -> None:
    def add(x: Any, y: Any, out: Any, *, times: int) -> None:
        out[...] = (x[...] + y[...]) * times

    def kernel(x: jax.Array, y: jax.Array, times: int) -> jax.Array:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pallas.pallas_call(functools.partial(add, times=times), out_shape=like, interpret=True)(x, y)

    added = make_kernel_from_pallas(kernel, lambda x, y, times: [(x.shape, x.dtype)])
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    found = added(x.to("xla"), y.to("xla"), 3, static_argnums=(2,))
    torch.testing.assert_close((found + 1).cpu(), (x + y) * 3 + 1)


def test_attention_by_its_class() -> None:
    q, k, v = (torch.randn(1, 2, 8, 4, device="xla") for _ in range(3))
    FlashAttention.DEFAULT_BLOCK_SIZES["block_q"] = 256  # for other devices
    assert torch.equal(FlashAttention.apply(q, k, v, True), flash_attention(q, k, v, causal=True))
