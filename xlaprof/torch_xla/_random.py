"""Random state as PyTorch/XLA has it: one number for each device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from xlaprof.runtime.tape import randomness

Device = torch.device | str


def set_rng_state(seed: int, device: Device | None = None) -> None:
    """Seed ``device``'s random numbers, by default the current one's, or restore a state of :func:`get_rng_state`."""
    state = int(seed) & ((1 << 128) - 1)
    words = state.to_bytes(16, "little")
    randomness.set_rng_state(torch.frombuffer(bytearray(words), dtype=torch.uint8), device)


def get_rng_state(device: Device | None = None) -> int:
    """The random state of ``device``, by default the current one, as a number: its seed until numbers are drawn."""
    return int.from_bytes(bytes(randomness.get_rng_state(device).tolist()), "little")


@contextlib.contextmanager
def fork_rng(device: Device | None = None, enabled: bool = True) -> Iterator[None]:
    """Context that restores the random state of ``device`` at its end."""
    before = get_rng_state(device)
    try:
        yield
    finally:
        if enabled:
            set_rng_state(before, device)
