"""Real models, small: how each is made from a config, what it is fed, and what is minimised.

Weights are random (``transformers`` and ``diffusers`` make them from the config), nothing is downloaded. Every model is
the library's own class with the library's defaults: ``sdpa`` attention, its own masks, its own loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffusers
import torch
import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

Batch = dict[str, Tensor]

#: vocabulary, batch size and sequence length of the language models
VOCAB, ROWS, LENGTH = 96, 2, 12


def own_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss that the model itself computes from its labels."""
    return model(**batch).loss  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Entry:
    """One model: made on the CPU, fed host tensors, its loss a 0-dim tensor."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Callable[[nn.Module, Batch], Tensor] = own_loss
    #: with the few that the fast suite runs
    fast: bool = False
    #: in which it is trained; float64 where float32 on the CPU forgets in five steps what it started from
    dtype: torch.dtype = torch.float32
    #: relative, of its losses
    tolerance: float = 1e-4
    #: values that the library's code reads from the device, per training step, and where
    reads: int = 0
    why: str = ""

    def model(self) -> nn.Module:
        """The model with the weights it always has."""
        torch.manual_seed(0)
        return self.build()

    def batches(self, count: int) -> list[Batch]:
        torch.manual_seed(1)
        return [self.batch() for _ in range(count)]


# -- what they are fed ---------------------------------------------------------------------------------


def tokens(rows: int = ROWS, length: int = LENGTH) -> Tensor:
    return torch.randint(4, VOCAB, (rows, length))


def padded() -> Tensor:
    """A mask over sequences of different lengths, padded on the right: 1 where there is a token."""
    lengths = torch.tensor([LENGTH, LENGTH - 5])
    return (torch.arange(LENGTH) < lengths[:, None]).long()


def seen(mask: Tensor) -> Tensor:
    """``mask`` in the form that attention takes: given a 2D one, transformers read it to see whether they need it."""
    return mask[:, None, None].bool()


def seen_before(mask: Tensor) -> Tensor:
    """The same for models that look back only."""
    return seen(mask) & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


def causal_text() -> Batch:
    ids = tokens()
    return {"input_ids": ids, "labels": ids}


def text(form: Callable[[Tensor], Tensor]) -> Callable[[], Batch]:
    """Padded sequences; ``form`` makes of their 2D mask what the model is given."""

    def batch() -> Batch:
        ids, mask = tokens(), padded()
        return {"input_ids": ids, "attention_mask": form(mask), "labels": ids.masked_fill(mask == 0, -100)}

    return batch


masked_text, padded_causal_text = text(seen), text(seen_before)


def translation() -> Batch:
    return {"input_ids": tokens(), "attention_mask": seen(padded()), "labels": tokens(ROWS, LENGTH - 3)}


def classified_images(rows: int = ROWS) -> Callable[[], Batch]:
    return lambda: {"pixel_values": torch.randn(rows, 3, 32, 32), "labels": torch.randint(4, (rows,))}


# -- how they are made ---------------------------------------------------------------------------------


def still(config: PretrainedConfig) -> PretrainedConfig:
    """``config`` with every dropout off: random numbers on ``xla`` are not the CPU's."""
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float | int) and not isinstance(value, bool):
            setattr(config, name, 0.0)
        elif isinstance(value, PretrainedConfig):
            still(value)
    return config


def made(model: str, config: str, /, **settings: Any) -> Callable[[], nn.Module]:
    """``transformers.<model>`` from ``transformers.<config>``, without dropout."""

    def build() -> PreTrainedModel:
        cls = getattr(transformers, model)
        return cls(still(getattr(transformers, config)(**settings)))  # type: ignore[no-any-return]

    return build


#: the sizes that most configs share
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
VISION = {k: SMALL[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
PICTURES = {**VISION, "image_size": 32, "patch_size": 8, "num_labels": 4}


def clip_batch() -> Batch:
    ids = tokens()
    ids[:, -1] = VOCAB - 1  # the end of the text, where its embedding is taken
    return {"input_ids": ids, "pixel_values": torch.randn(ROWS, 3, 32, 32)}


def build_clip() -> nn.Module:
    text = transformers.CLIPTextConfig(
        **{**SMALL, "bos_token_id": VOCAB - 2, "eos_token_id": VOCAB - 1}, projection_dim=32
    )
    vision = transformers.CLIPVisionConfig(**{**VISION, "image_size": 32, "patch_size": 8}, projection_dim=32)
    config = transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=32)
    return transformers.CLIPModel(still(config))


def clip_loss(model: nn.Module, batch: Batch) -> Tensor:
    return model(**batch, return_loss=True).loss  # type: ignore[no-any-return]


def whisper_batch() -> Batch:
    return {"input_features": torch.randn(ROWS, 80, 100), "labels": tokens()}


# -- diffusers -----------------------------------------------------------------------------------------


def build_unet() -> nn.Module:
    return diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=4,
        norm_num_groups=8,
    )


def unet_batch() -> Batch:
    return {
        "sample": torch.randn(ROWS, 4, 8, 8),
        "timestep": torch.randint(0, 1000, (ROWS,)),
        "encoder_hidden_states": torch.randn(ROWS, 6, 32),
        "noise": torch.randn(ROWS, 4, 8, 8),
    }


def unet_loss(model: nn.Module, batch: Batch) -> Tensor:
    predicted = model(**{k: v for k, v in batch.items() if k != "noise"}).sample
    return nn.functional.mse_loss(predicted, batch["noise"])


def build_vae() -> nn.Module:
    return diffusers.AutoencoderKL(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
    )


def pictures() -> Batch:
    return {"sample": torch.randn(ROWS, 3, 16, 16)}


def vae_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Reconstruction and Kullback-Leibler terms, as autoencoders are trained; the mode, not a sample."""
    posterior = model.encode(batch["sample"]).latent_dist  # type: ignore[operator]
    decoded = model.decode(posterior.mode()).sample  # type: ignore[operator]
    return nn.functional.mse_loss(decoded, batch["sample"]) + 1e-3 * posterior.kl().mean()


LISTED = (
    Entry("bert", made("BertForMaskedLM", "BertConfig", **SMALL), masked_text, fast=True),
    Entry(
        "gpt2",
        made("GPT2LMHeadModel", "GPT2Config", vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4),
        causal_text,
        fast=True,
    ),
    Entry("llama", made("LlamaForCausalLM", "LlamaConfig", **GROUPED), padded_causal_text),
    Entry(
        "t5",
        made(
            "T5ForConditionalGeneration",
            "T5Config",
            vocab_size=VOCAB,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        ),
        translation,
    ),
    Entry("vit", made("ViTForImageClassification", "ViTConfig", **PICTURES), classified_images()),
    Entry(
        "resnet",
        made(
            "ResNetForImageClassification",
            "ResNetConfig",
            embedding_size=16,
            hidden_sizes=[16, 32],
            depths=[2, 1],
            num_labels=4,
        ),
        classified_images(),
        fast=True,
    ),
    Entry(
        "mobilenet_v2",
        made(
            "MobileNetV2ForImageClassification",
            "MobileNetV2Config",
            image_size=32,
            depth_multiplier=0.25,
            num_labels=4,
            initializer_range=0.2,
        ),
        classified_images(rows=8),
        # 52 batch norms over few values each: pictures scaled by 1 + 1e-7 change the fifth loss by 5% and more
        dtype=torch.float64,
    ),
    Entry("clip", build_clip, clip_batch, clip_loss),
    Entry(
        "whisper",
        made(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            vocab_size=VOCAB,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=50,
            max_target_positions=32,
            decoder_start_token_id=1,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        whisper_batch,
    ),
    Entry(
        "mamba",
        made(
            "MambaForCausalLM",
            "MambaConfig",
            vocab_size=VOCAB,
            hidden_size=32,
            state_size=8,
            num_hidden_layers=2,
        ),
        causal_text,
    ),
    Entry("unet", build_unet, unet_batch, unet_loss),
    Entry("vae", build_vae, pictures, vae_loss),
)

ZOO = {entry.name: entry for entry in LISTED}
