"""``torch.xla``: what PyTorch asks of every device's module (random state for checkpointing, the current device...)."""

from __future__ import annotations

from types import ModuleType, TracebackType

import torch

from . import execute, randomness, tapes


class device:  # named as torch.cuda.device is
    """Context in which ``xla:index`` is the current device."""

    def __init__(self, index: int | torch.device) -> None:
        given = index.index if isinstance(index, torch.device) else index
        self.index = 0 if given is None else given
        self._before = 0

    def __enter__(self) -> None:
        self._before = tapes.current()
        tapes.set_current(self.index)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        tapes.set_current(self._before)


def synchronize(device: int | torch.device | None = None) -> None:
    """Return when the devices have finished what was handed to them."""
    execute.wait_for()


def install() -> None:
    """Make ``torch.xla`` (``torch.get_device_module("xla")``)."""
    if hasattr(torch, "xla"):
        return
    module = ModuleType("torch.xla", __doc__)
    module.__dict__.update(
        device=device,
        device_count=tapes.count,
        current_device=tapes.current,
        set_device=tapes.set_current,
        is_available=lambda: True,
        is_initialized=lambda: True,
        _initialized=True,
        _is_in_bad_fork=lambda: False,
        synchronize=synchronize,
        manual_seed=randomness.manual_seed,
        manual_seed_all=randomness.manual_seed,
        initial_seed=randomness.seed_of_device,
        get_rng_state=lambda device=None: randomness.get_rng_state(),
        set_rng_state=lambda state, device=None: randomness.set_rng_state(state),
    )
    torch._register_device_module("xla", module)
