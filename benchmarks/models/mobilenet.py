"""MobileNetV2 (Sandler et al. 2018), as torchvision has it."""

from __future__ import annotations

import torch
from torch import nn

#: expansion, channels, blocks, stride of the first
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]


class InvertedResidual(nn.Module):
    """Widened by a 1x1 convolution, convolved channel by channel, narrowed without an activation."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            *(_conv(inputs, width, 1) if expansion != 1 else []),
            *_conv(width, width, 3, stride, groups=width),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


def mobilenet_v2() -> nn.Module:
    """3.5 M parameters."""
    layers: list[nn.Module] = _conv(3, 32, 3, 2)
    channels = 32
    for expansion, outputs, count, first in STAGES:
        for i in range(count):
            layers.append(InvertedResidual(channels, outputs, first if i == 0 else 1, expansion))
            channels = outputs
    layers += _conv(channels, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))
