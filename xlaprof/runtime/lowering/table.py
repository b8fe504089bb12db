"""Every family of lowerings, imported once: importing this module fills :data:`registry.LOWERINGS`."""

from __future__ import annotations

import importlib

from xlaprof.runtime.lowering.registry import LOWERINGS, RANDOM, STATIC

FAMILIES = (
    "activation",
    "arithmetic",
    "bags",
    "bessel",
    "conversion",
    "convolution",
    "creation",
    "ctc",
    "elementary",
    "embedding",
    "fourier",
    "fractional",
    "histograms",
    "indexing",
    "linalg",
    "logical",
    "loss",
    "lu",
    "margin",
    "matmul",
    "normalization",
    "patches",
    "pieces",
    "polynomials",
    "pooling",
    "random",
    "reduction",
    "resize",
    "sampling",
    "segments",
    "scan",
    "selection",
    "softmax",
    "sorting",
    "special",
    "structure",
)

for _family in FAMILIES:
    importlib.import_module(f"{__package__}.{_family}")

__all__ = ["FAMILIES", "LOWERINGS", "RANDOM", "STATIC"]
