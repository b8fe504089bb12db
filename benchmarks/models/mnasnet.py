"""MnasNet-B1 (Tan et al. 2018), as torchvision has it."""

from __future__ import annotations

import torch
from torch import nn

#: channels, kernel, stride of the first, expansion, blocks
STAGES = (
    (24, 3, 2, 3, 3),
    (40, 5, 2, 3, 3),
    (80, 5, 2, 6, 3),
    (96, 3, 1, 6, 2),
    (192, 5, 2, 6, 4),
    (320, 3, 1, 6, 1),
)

#: torchvision's, after TensorFlow's 0.9997
MOMENTUM = 1 - 0.9997


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, relu: bool = True) -> list[nn.Module]:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, momentum=MOMENTUM),
    ]
    return [*layers, nn.ReLU(inplace=True)] if relu else layers


class InvertedResidual(nn.Module):
    """Widened by a 1x1 convolution, convolved channel by channel, narrowed without an activation."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            *_conv(inputs, width, 1), *_conv(width, width, size, stride, width), *_conv(width, outputs, 1, relu=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


def mnasnet1_0() -> nn.Module:
    """4.4 M parameters."""
    layers = [*_conv(3, 32, 3, 2), *_conv(32, 32, 3, 1, 32), *_conv(32, 16, 1, relu=False)]
    channels = 16
    for outputs, size, first, expansion, count in STAGES:
        for i in range(count):
            layers.append(InvertedResidual(channels, outputs, size, first if i == 0 else 1, expansion))
            channels = outputs
    layers += _conv(channels, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))
