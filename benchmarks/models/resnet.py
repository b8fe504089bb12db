"""ResNet (He et al. 2015) and ResNeXt (Xie et al. 2016), as torchvision has them."""

from __future__ import annotations

import torch
from torch import nn


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    padding = size // 2
    return [
        nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a bottleneck of 1x1, 3x3 (in groups), 1x1."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, groups: int, bottleneck: bool) -> None:
        super().__init__()
        if bottleneck:
            layers = [
                *_conv(inputs, width, 1), nn.ReLU(inplace=True),
                *_conv(width, width, 3, stride, groups), nn.ReLU(inplace=True),
                *_conv(width, outputs, 1),
            ]  # fmt: skip
        else:
            layers = [*_conv(inputs, width, 3, stride), nn.ReLU(inplace=True), *_conv(width, outputs, 3)]
        self.layers = nn.Sequential(*layers)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.layers(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Four stages of blocks, each of half the resolution of the one before."""

    def __init__(self, blocks: list[int], bottleneck: bool, groups: int = 1, width_per_group: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        channels = 64
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            planes = 64 << stage
            width = planes * width_per_group // 64 * groups
            outputs = planes * (4 if bottleneck else 1)
            for i in range(count):
                stride = 2 if stage and i == 0 else 1
                stages.append(Block(channels, width, outputs, stride, groups, bottleneck))
                channels = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)))


def resnet18() -> nn.Module:
    """11.7 M parameters."""
    return ResNet([2, 2, 2, 2], bottleneck=False)


def resnet50() -> nn.Module:
    """25.6 M parameters."""
    return ResNet([3, 4, 6, 3], bottleneck=True)


def resnext50_32x4d() -> nn.Module:
    """25.0 M parameters: 32 groups of 4 channels."""
    return ResNet([3, 4, 6, 3], bottleneck=True, groups=32, width_per_group=4)
