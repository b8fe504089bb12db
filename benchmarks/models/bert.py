"""BERT base (Devlin et al. 2018), transformers' own, classifying a sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

VOCABULARY = 30522


class Classifier(nn.Module):
    """Tokens in, logits of 1000 classes out."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config: Any = BertConfig(vocab_size=VOCABULARY)
        self.bert = BertModel(config)
        self.head = nn.Linear(config.hidden_size, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.bert(tokens).pooler_output)


def bert() -> nn.Module:
    """110 M parameters."""
    return Classifier()
