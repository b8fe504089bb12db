"""SqueezeNet 1.1 (Iandola et al. 2016), as torchvision has it."""

from __future__ import annotations

import torch
from torch import nn


class Fire(nn.Module):
    """Squeezed by a 1x1 convolution, expanded by a 1x1 and a 3x3 one side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU(inplace=True))
        self.point = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU(inplace=True))
        self.around = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.squeeze(x)
        return torch.cat([self.point(x), self.around(x)], 1)


def squeezenet1_1() -> nn.Module:
    """1.2 M parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(64, 16, 64), Fire(128, 16, 64), nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(128, 32, 128), Fire(256, 32, 128), nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
        nn.Dropout(), nn.Conv2d(512, 1000, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
