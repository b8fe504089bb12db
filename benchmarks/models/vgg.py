"""VGG (Simonyan and Zisserman 2014), as torchvision has it."""

from __future__ import annotations

from torch import nn

#: channels of the 3x3 convolutions of each stage
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16() -> nn.Module:
    """138.4 M parameters."""
    layers: list[nn.Module] = []
    channels = 3
    for stage in STAGES:
        for width in stage:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
        nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 1000),
    )  # fmt: skip
