"""Random state of the ``xla`` device: a seed and how many random operations were drawn since.

Each random operation takes the threefry key of (seed, its number) as a hidden input of its graph, so the same seed
gives the same numbers wherever barriers fall, and a new seed compiles nothing. ``torch.manual_seed`` seeds this too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

_MASK = (1 << 32) - 1


class _State:
    def __init__(self) -> None:
        self.seed = 0
        self.offset = 0
        self.lock = threading.Lock()


_state = _State()


def manual_seed(seed: int) -> None:
    """Seed the random numbers of the ``xla`` device."""
    with _state.lock:
        _state.seed, _state.offset = int(seed), 0


def seed_of_device() -> int:
    """The seed last given."""
    return _state.seed


def get_rng_state() -> torch.Tensor:
    """The state as a CPU tensor, ``int64[2]``: seed and offset (what ``torch.utils.checkpoint`` saves)."""
    with _state.lock:
        return torch.tensor([_signed(_state.seed), _state.offset], dtype=torch.int64)


def set_rng_state(state: torch.Tensor) -> None:
    """Restore what :func:`get_rng_state` returned."""
    seed, offset = state.tolist()
    with _state.lock:
        _state.seed, _state.offset = seed, offset


def _signed(seed: int) -> int:
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def draw(generator: torch.Generator | None = None) -> tuple[int, int]:
    """Threefry key data ``(u32, u32)`` for the next random operation; from ``generator`` where the user gave one."""
    if generator is not None:
        low, high = torch.randint(0, 1 << 32, (2,), generator=generator, dtype=torch.int64).tolist()
        return low, high
    with _state.lock:
        seed, offset = _state.seed & ((1 << 64) - 1), _state.offset
        _state.offset += 1
    # SplitMix64's finalizer keeps neighbouring seeds apart after folding to 32 bits.
    mixed = (seed + 0x9E3779B97F4A7C15 * (1 + (offset >> 32))) & ((1 << 64) - 1)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & ((1 << 64) - 1)
    return (mixed ^ (mixed >> 31)) & _MASK, offset & _MASK


def follow_torch_seed() -> None:
    """Make ``torch.manual_seed`` and ``torch.seed`` seed the ``xla`` device as they seed every other."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def manual_seed_everywhere(seed: Any) -> Any:
            generator = original(seed)
            manual_seed(generator.initial_seed())
            return generator

        manual_seed_everywhere.__doc__ = original.__doc__
        manual_seed_everywhere.__name__ = original.__name__
        manual_seed_everywhere.__wrapped__ = original  # type: ignore[attr-defined]
        return manual_seed_everywhere

    wrapped = wrap(torch.random.manual_seed)
    torch.random.manual_seed = torch.manual_seed = wrapped
    manual_seed(torch.initial_seed())
