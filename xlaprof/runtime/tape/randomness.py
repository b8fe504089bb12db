"""Random state of the ``xla`` devices: for each a seed, and the number of random operations since.

The threefry key of (seed, number) is a hidden input of each random operation's graph. So the same seed gives the same
numbers wherever barriers are, and a new seed compiles nothing. ``torch.manual_seed`` and ``torch.seed`` seed this too.
The numbers are the same on every device, and differ from the host's.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch

from . import generator as generators
from . import tapes

_WORD, _LONG = (1 << 32) - 1, (1 << 64) - 1
#: 2**64 / golden ratio, made odd: its multiples are spread evenly (SplitMix64)
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class _State:
    seed: int
    offset: int = 0


_lock = threading.Lock()
_states: dict[int, _State] = {}  # by device
_seed = 0  # of devices that have no state yet


def _state(index: int) -> _State:
    found = _states.get(index)
    if found is None:
        found = _states[index] = _State(_seed)
    return found


def _index(device: Any) -> int:
    """Number of a device given as PyTorch's device modules take it: a number, a device, its name, or ``None``."""
    if device is None:
        return tapes.current()
    if isinstance(device, int):
        return device
    given = torch.device(device).index
    return tapes.current() if given is None else given


def manual_seed_all(seed: int) -> None:
    """Seed the random numbers of all ``xla`` devices."""
    global _seed
    with _lock:
        _seed = int(seed) & _LONG
        _states.clear()


def manual_seed(seed: int, device: Any = None) -> None:
    """Seed the random numbers of an ``xla`` device (``torch.device``, name or number), by default the current one."""
    with _lock:
        _states[_index(device)] = _State(int(seed) & _LONG)


def initial_seed(device: Any = None) -> int:
    """The seed last given to an ``xla`` device, by default the current one."""
    with _lock:
        return _state(_index(device)).seed


def get_rng_state(device: Any = None) -> torch.Tensor:
    """State of an ``xla`` device, by default the current one: ``uint8[16]`` on the host, seed and offset."""
    with _lock:
        state = _state(_index(device))
        words = state.seed.to_bytes(8, "little") + state.offset.to_bytes(8, "little")
    return torch.tensor(list(words), dtype=torch.uint8)


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Restore what :func:`get_rng_state` returned. Raises ``TypeError`` or ``RuntimeError`` for anything else."""
    if not isinstance(state, torch.Tensor) or state.dtype is not torch.uint8:
        raise TypeError(f"RNG state must be a torch.ByteTensor, not {getattr(state, 'dtype', type(state).__name__)}")
    if state.shape != (16,):
        raise RuntimeError(f"RNG state of xla has 16 bytes (torch.xla.get_rng_state()), not {list(state.shape)}")
    words = bytes(state.tolist())
    with _lock:
        _states[_index(device)] = _State(int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little"))


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all ``xla`` devices, in their order."""
    return [get_rng_state(index) for index in range(tapes.count())]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    """Restore what :func:`get_rng_state_all` returned."""
    for index, state in enumerate(states):
        set_rng_state(state, index)


def draw(index: int, generator: torch.Generator | None = None) -> tuple[int, int]:
    """Threefry key ``(u32, u32)`` of the next random operation on ``xla:index``, or from the user's ``generator``."""
    if generator is None:
        with _lock:
            state = _state(index)
            seed, offset = state.seed, state.offset
            state.offset += 1
        key = (_mixed(seed) + offset * _GOLDEN) & _LONG
        return key >> 32, key & _WORD
    if generator.device.type == "cpu":
        return _key_from(generator)
    host = generators.on_host(generator)
    drawn = _key_from(host)
    generator.set_state(host.get_state())
    return drawn


def generator_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Generator | None:
    """The generator that the user gave to a random operation."""
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator)), None)


def _key_from(generator: torch.Generator) -> tuple[int, int]:
    high, low = torch.randint(0, 1 << 32, (2,), generator=generator, dtype=torch.int64).tolist()
    return high, low


def host_generator(index: int, generator: torch.Generator | None = None) -> torch.Generator:
    """A host generator for one operation of ``xla:index`` that runs on the CPU: numbers of the device's stream."""
    high, low = draw(index, generator)
    return torch.Generator().manual_seed(high << 32 | low)


def _mixed(seed: int) -> int:
    """SplitMix64's finalizer: spreads neighbouring seeds far apart."""
    seed = (seed + _GOLDEN) & _LONG
    seed = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & _LONG
    seed = ((seed ^ (seed >> 27)) * 0x94D049BB133111EB) & _LONG
    return seed ^ (seed >> 31)


def install() -> None:
    """Make ``torch.manual_seed`` and ``torch.seed`` seed the ``xla`` devices too.

    Both call the function of :mod:`torch.random` that seeds devices from outside of PyTorch.
    """
    generators.install()
    seed_others = torch.random._seed_custom_device

    def seed_custom_device(seed: Any) -> None:
        seed_others(seed)
        manual_seed_all(seed)

    seed_custom_device.__doc__ = seed_others.__doc__
    torch.random._seed_custom_device = seed_custom_device
    manual_seed_all(torch.initial_seed())
