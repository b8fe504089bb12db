"""The Stable Diffusion pipeline of the case study: diffusers' own, small, with random weights, from no download."""

from __future__ import annotations

import diffusers
import transformers

START, END = "<|startoftext|>", "<|endoftext|>"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pipeline(scheduler: diffusers.SchedulerMixin) -> diffusers.StableDiffusionPipeline:
    """A pipeline on the CPU; seed torch before, for the weights."""
    words = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), START, END]
    vocab = {word: number for number, word in enumerate(words)}
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
    unet = diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32,),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("UpBlock2D",),
        mid_block_type=None,
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    vae = diffusers.AutoencoderKL(
        sample_size=64,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
    )
    return diffusers.StableDiffusionPipeline(
        vae=vae.eval(),
        text_encoder=transformers.CLIPTextModel(text).eval(),
        tokenizer=transformers.CLIPTokenizer(vocab=vocab, merges=[], model_max_length=8),
        unet=unet.eval(),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
