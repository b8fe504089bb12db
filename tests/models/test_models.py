"""Models people train, as their libraries make them: the same numbers as on the CPU, one program per step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime.counting import Counts, counted
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import xlaprof.runtime as xr

from .extra import EXTRA
from .reading import Reads
from .zoo import LISTED, ZOO, Batch, Entry, text, tokens

pytestmark = pytest.mark.filterwarnings("default")  # what the libraries warn of is theirs

#: training steps compared, and how many of them may compile: the first, and the first that finds state
STEPS, WARM_UP = 5, 2
#: trained with AdamW, which compiles twice as long as the SGD that the others get
ADAMW = ("gpt2", "vit", "vae", "mamba")


def on_xla(batch: Batch) -> Batch:
    return {name: value.to("xla") for name, value in batch.items()}


def fallbacks(counts: Counts) -> dict[str, int]:
    """Operations that the CPU computed; a number that the program asks for is none."""
    return {k: n for k, n in counts.items() if n and k.startswith("aten::") and k != "aten::_local_scalar_dense"}


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The largest deviation, relative to the largest value."""
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    if not theirs.numel():
        return 0.0
    ours, theirs = ours.double(), theirs.double()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12))


def outputs(model: nn.Module, entry: Entry, batch: Batch) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        result: Any = model(**{name: value for name, value in batch.items() if name != "noise"})
    return [leaf for leaf in tree_leaves(dict(result)) if isinstance(leaf, Tensor)]


def train(model: nn.Module, entry: Entry, batches: list[Batch]) -> tuple[list[float], list[Counts]]:
    """Losses of one step per batch, and what each step made the runtime do. Losses are read at the end."""
    model.train()
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
        if entry.name in ADAMW
        else torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    )
    losses, counts = [], []
    for batch in batches:
        with counted() as step:
            optimizer.zero_grad()
            loss = entry.loss(model, batch)
            loss.backward()
            optimizer.step()
            xr.sync()
        losses.append(loss.detach())
        counts.append(step)
    return [float(loss) for loss in losses], counts


def params(entries: tuple[Entry, ...]) -> list[Any]:
    return [pytest.param(e, id=e.name, marks=() if e.fast else pytest.mark.slow) for e in entries]


@pytest.mark.parametrize("entry", params(LISTED + EXTRA))
def test_a_model_computes_and_learns_what_it_does_on_the_cpu_in_one_program_per_step(entry: Entry) -> None:
    here, there = entry.model(), entry.model().to("xla")
    batches = entry.batches(STEPS + 1)
    with counted() as forward:
        ours = outputs(there, entry, on_xla(batches[0]))
        xr.sync()
    theirs = outputs(here, entry, batches[0])
    assert len(ours) == len(theirs) > 0
    assert max(distance(o.cpu(), t) for o, t in zip(ours, theirs, strict=True)) < 1e-4
    assert not fallbacks(forward)

    if entry.dtype is not torch.float32:
        here, there = here.to(entry.dtype), there.to(entry.dtype)
        batches = [{k: v.to(entry.dtype) if v.is_floating_point() else v for k, v in b.items()} for b in batches]
    expected, _ = train(here, entry, batches)
    losses, counts = train(there, entry, [on_xla(batch) for batch in batches])
    assert losses == pytest.approx(expected, rel=entry.tolerance)
    assert all(not fallbacks(step) for step in counts)
    for step in counts[WARM_UP:]:
        assert (step.compiles, step.runs, step.reads) == (0, 1 + entry.reads, entry.reads), entry.why


def test_with_dropout_on_it_learns_and_compiles_nothing_new() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=16, n_embd=32, n_layer=1, n_head=4)).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ids = tokens().to("xla")
    losses, compiles = [], []
    for _ in range(6):
        with counted() as step:
            optimizer.zero_grad()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            xr.sync()
        losses.append(loss.detach())
        compiles.append(step.compiles)
    values = torch.stack(losses).tolist()
    assert values[-1] < values[0]
    assert compiles[2:] == [0] * 4
    with torch.no_grad():
        first, second, calm = (model(input_ids=ids).logits for _ in range(2)), None, None
        a, b = first
        model.eval()
        calm, second = model(input_ids=ids).logits, model(input_ids=ids).logits
    same = torch.stack([(a == b).all(), (calm == second).all()]).tolist()
    assert same == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_2d_mask_is_read_by_transformers_to_see_whether_it_is_needed(name: str) -> None:
    entry = ZOO[name]
    model = entry.model().to("xla")
    torch.manual_seed(1)
    batch = on_xla(text(lambda mask: mask)())
    with Reads() as reads, counted() as counts:
        loss = entry.loss(model, batch)
        xr.sync()
    assert reads.lines
    assert all(line.startswith("masking_utils.py:") for line in reads.lines)
    assert counts.reads == len(reads.lines)
    assert float(loss) == pytest.approx(float(entry.loss(entry.model(), {k: v.cpu() for k, v in batch.items()})), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "unet"])
def test_gradient_checkpointing_recomputes_the_same(name: str) -> None:
    entry = ZOO[name]
    losses = {}
    for checkpointing in (False, True):
        model = entry.model().to("xla")
        if checkpointing:
            enable = getattr(model, "gradient_checkpointing_enable", None) or model.enable_gradient_checkpointing
            enable()
        losses[checkpointing], counts = train(model, entry, [on_xla(batch) for batch in entry.batches(4)])
        # GPT-2 without its cache, as it is then, reads whether positions start anew (masking_utils.py:776)
        asked = int(checkpointing and name == "gpt2")
        assert [(step.compiles, step.runs, step.reads) for step in counts[WARM_UP:]] == [(0, 1 + asked, asked)] * 2
    assert losses[True] == pytest.approx(losses[False], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_far_from_float32_as_it_is_on_the_cpu(dtype: torch.dtype) -> None:
    entry = ZOO["llama"]
    batch = entry.batches(1)[0]
    exact = outputs(entry.model(), entry, batch)[1]
    theirs = outputs(entry.model().to(dtype), entry, batch)[1]
    ours = outputs(entry.model().to("xla").to(dtype), entry, on_xla(batch))[1].cpu()
    assert ours.dtype is dtype
    assert distance(ours.float(), exact) < 1.5 * distance(theirs.float(), exact) + 1e-3


def test_tied_weights_stay_tied_and_state_dicts_travel() -> None:
    entry = ZOO["gpt2"]
    model = entry.model()
    assert model.lm_head.weight is model.transformer.wte.weight
    names = [name for name, _ in model.named_parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # made before the move, as is usual
    model.to("xla")
    assert model.lm_head.weight is model.transformer.wte.weight
    assert [name for name, _ in model.named_parameters()] == names
    batch = on_xla(entry.batches(1)[0])
    for _ in range(2):
        optimizer.zero_grad()
        entry.loss(model, batch).backward()
        optimizer.step()
        xr.sync()
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    started = entry.model().state_dict()
    assert not torch.equal(state["lm_head.weight"], started["lm_head.weight"])
    back = entry.model()
    back.load_state_dict(state)
    again = entry.model().to("xla")
    again.load_state_dict(state)
    model.cpu()
    assert model.lm_head.weight is model.transformer.wte.weight
    for name, value in again.state_dict().items():
        assert torch.equal(value.cpu(), state[name])
        assert torch.equal(back.state_dict()[name], state[name])
        assert torch.equal(model.state_dict()[name], state[name])
