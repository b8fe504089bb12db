"""A Stable Diffusion pipeline, small: the CPU's picture, whatever the scheduler, and what each step costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
import transformers
from runtime.counting import Counts, counted

import xlaprof.runtime as xr

from .reading import Reads
from .zoo import build_unet, build_vae

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

STEPS = 4
SCHEDULERS = {
    "ddim": diffusers.DDIMScheduler,
    "pndm": diffusers.PNDMScheduler,
    "euler": diffusers.EulerDiscreteScheduler,
    "lms": diffusers.LMSDiscreteScheduler,
}
START, END = "<|startoftext|>", "<|endoftext|>"


def pipeline(scheduler: str) -> Any:
    """The pipeline on the CPU, with the weights it always has."""
    torch.manual_seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocab = {symbol: i for i, symbol in enumerate([*letters, *(f"{c}</w>" for c in letters), START, END])}
    tokenizer = transformers.CLIPTokenizer(vocab=vocab, merges=[], model_max_length=8)
    text = transformers.CLIPTextConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=8,
        bos_token_id=vocab[START],
        eos_token_id=vocab[END],
        pad_token_id=vocab[END],
    )
    made = diffusers.StableDiffusionPipeline(
        vae=build_vae().eval(),
        text_encoder=transformers.CLIPTextModel(text).eval(),
        tokenizer=tokenizer,
        unet=build_unet().eval(),
        scheduler=SCHEDULERS[scheduler](),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    made.set_progress_bar_config(disable=True)
    return made


def picture(pipe: Any, after_step: Callable[[], None] = lambda: None, count: int = STEPS) -> np.ndarray[Any, Any]:
    def callback(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        after_step()
        return {}

    latents = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(3))
    return pipe(  # type: ignore[no-any-return]
        "a cat",
        num_inference_steps=count,
        latents=latents.to(pipe.device),
        output_type="np",
        callback_on_step_end=callback,
    ).images


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_picture_is_the_cpus_and_a_step_one_program_besides_what_the_scheduler_reads(scheduler: str) -> None:
    pipe = pipeline(scheduler).to("xla")
    assert pipe.device.type == "xla"
    steps: list[Counts] = []

    def step() -> None:
        xr.sync()
        totals, _ = xr.metrics.totals()
        steps.append(Counts(totals))

    np.testing.assert_allclose(picture(pipe, step), picture(pipeline(scheduler)), atol=2e-4)
    steps.clear()
    with Reads() as reads, counted() as whole:
        picture(pipe, step)
    cost = [(b.compiles - a.compiles, b.runs - a.runs, b.reads - a.reads) for a, b in pairwise(steps)]
    print(scheduler, cost, dict(Counter(reads.lines)))
    for compiles, runs, asked in cost:
        assert compiles == 0
        assert runs <= 1 + asked
    # what is read in Python: schedulers' numbers, and where in their table a time step stands; the picture itself
    own = {line.split(":")[0] for line in reads.lines if not line.startswith("scheduling_")}
    assert own <= {"image_processor.py", "pipeline_stable_diffusion.py"}, reads.lines
    asks = {"aten::_local_scalar_dense", "aten::nonzero"}
    assert not [k for k, n in whole.items() if n and k.startswith("aten::") and k not in asks]


def test_without_a_barrier_the_steps_are_one_long_program() -> None:
    np.testing.assert_allclose(
        picture(pipeline("ddim").to("xla"), count=2), picture(pipeline("ddim"), count=2), atol=2e-4
    )
