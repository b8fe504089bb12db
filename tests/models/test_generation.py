"""``generate()``: the tokens the CPU chooses, with caches that grow and caches that do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime.counting import counted

import xlaprof.runtime as xr

from .zoo import VOCAB, ZOO, tokens

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

NEW = 6


def generated(model: Any, ids: torch.Tensor, **settings: Any) -> list[list[int]]:
    model.eval()
    mask = torch.ones_like(ids)
    chosen = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=NEW, min_new_tokens=NEW, pad_token_id=0, **settings
    )
    return chosen.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_greedy_tokens_are_those_of_the_cpu(name: str, cache: str | None) -> None:
    torch.manual_seed(1)
    ids = tokens()
    settings: dict[str, Any] = {"do_sample": False, "cache_implementation": cache, "disable_compile": True}
    assert generated(ZOO[name].model().to("xla"), ids.to("xla"), **settings) == generated(
        ZOO[name].model(), ids, **settings
    )


def test_generating_again_with_a_static_cache_compiles_nothing() -> None:
    torch.manual_seed(1)
    ids = tokens().to("xla")
    model = ZOO["llama"].model().to("xla")
    settings: dict[str, Any] = {"do_sample": False, "cache_implementation": "static", "disable_compile": True}
    first = generated(model, ids, **settings)
    assert generated(model, ids, **settings) == first  # now it finds its cache, and empties it
    with counted() as again:
        assert generated(model, ids, **settings) == first
    assert again.compiles == 0


def test_sampling_follows_the_seed() -> None:
    torch.manual_seed(1)
    ids = tokens().to("xla")
    model = ZOO["gpt2"].model().to("xla")
    runs = []
    for seed in (3, 3, 4):
        xr.manual_seed(seed)
        runs.append(generated(model, ids, do_sample=True, top_k=20, top_p=0.9, temperature=1.5))
    assert runs[0] == runs[1] != runs[2]
    assert all(0 <= token < VOCAB for row in runs[0] for token in row)
