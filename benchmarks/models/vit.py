"""Vision transformer, ViT-S/16 (Dosovitskiy et al. 2020; the documents' is timm's), transformers' own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Classifier(nn.Module):
    """Images of 224 x 224 in, logits of 1000 classes out."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification

        config: Any = ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_labels=1000)
        self.vit = ViTForImageClassification(config)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.vit(images).logits
        return logits


def vit() -> nn.Module:
    """22.1 M parameters."""
    return Classifier()
