"""Every family of lowerings, imported once: importing this module fills :data:`registry.LOWERINGS`."""

from __future__ import annotations

import importlib

from xlaprof.runtime.lowering.registry import LOWERINGS, RANDOM, STATIC

FAMILIES = (
    "activation",
    "arithmetic",
    "conversion",
    "convolution",
    "creation",
    "elementary",
    "embedding",
    "fourier",
    "indexing",
    "linalg",
    "logical",
    "loss",
    "matmul",
    "normalization",
    "patches",
    "pieces",
    "pooling",
    "random",
    "reduction",
    "resize",
    "sampling",
    "scan",
    "softmax",
    "sorting",
    "special",
    "structure",
)

for _family in FAMILIES:
    importlib.import_module(f"{__package__}.{_family}")

__all__ = ["FAMILIES", "LOWERINGS", "RANDOM", "STATIC"]
