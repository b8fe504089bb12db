"""The ten models of PyTorch/XLA's documents: torchvision's architectures, and transformers' BERT and ViT.

Each is made with random weights by a function without arguments; what it is fed is told by :data:`FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from . import alexnet, bert, mnasnet, mobilenet, resnet, squeezenet, vgg, vit

#: name -> how it is made, and whether it reads images (or else tokens)
MODELS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "resnet18": (resnet.resnet18, True),
    "resnet50": (resnet.resnet50, True),
    "resnext50_32x4d": (resnet.resnext50_32x4d, True),
    "alexnet": (alexnet.alexnet, True),
    "mobilenet_v2": (mobilenet.mobilenet_v2, True),
    "mnasnet1_0": (mnasnet.mnasnet1_0, True),
    "vgg16": (vgg.vgg16, True),
    "BERT": (bert.bert, False),
    "squeezenet1_1": (squeezenet.squeezenet1_1, True),
    "ViT": (vit.vit, True),
}

CLASSES = 1000


def batch(name: str, size: int, images: int, length: int) -> torch.Tensor:
    """What ``name`` reads: ``f32[size, 3, images, images]``, or ``s64[size, length]``."""
    if MODELS[name][1]:
        pixels = 224 if name == "ViT" else images  # ViT's positions are of one size
        return torch.randn(size, 3, pixels, pixels)
    return torch.randint(0, bert.VOCABULARY, (size, length))
