"""Where a program of this folder runs, and how it tells what it computed: ``benchmarks/wild.py`` sets the variables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch

BACKEND = os.environ.get("WILD_BACKEND", "")  # of torch.compile; "": not compiled
IS_XLA = os.environ.get("WILD_DEVICE") == "xla"

sync: Callable[[], None]
if IS_XLA:
    import torch_xla

    device = torch_xla.device()
    sync = torch_xla.sync  # the programs call it: it is their line that ends a graph
else:
    device = torch.device("cpu")

    def sync() -> None:
        """Nothing: a CPU computes at once."""


def compiled(function: Any) -> Any:
    """A function or module under ``torch.compile``, where that is asked for."""
    return torch.compile(function, backend=BACKEND) if BACKEND else function


def finish(numbers: list[Any]) -> None:
    """Print what the program computed, step by step: Python numbers, or tensors of one element on any device."""
    if numbers and isinstance(numbers[0], torch.Tensor):
        numbers = torch.stack([number.detach().reshape(()) for number in numbers]).tolist()
    print("computed", json.dumps(numbers))
