"""``torch.xla``: what PyTorch expects of every device's module (random state for checkpoints, current device...)."""

from __future__ import annotations

from types import ModuleType, TracebackType

import torch

from xlaprof.runtime.execution import barrier, memory
from xlaprof.runtime.tape import randomness, tapes

from . import fork_guard

_Device = int | str | torch.device | None


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
    """Return when the devices have finished all programs handed to them."""
    barrier.wait_for()


def get_device_name(device: _Device = None) -> str:
    """What jax calls the device: ``"cpu"``, ``"TPU v4"``, ``"NVIDIA A100-SXM4-40GB"``..."""
    return str(tapes.tape(_index(device)).device.device_kind)


def memory_allocated(device: _Device = None) -> int:
    """Bytes on the device that belong to tensors; :func:`xlaprof.runtime.memory_info` says to which."""
    return memory.memory_info(tapes.tape(_index(device)).torch_device).bytes_in_use


def _index(device: _Device) -> int | None:
    if device is None or isinstance(device, int):
        return device
    given = torch.device(device)
    if given.type != "xla":
        raise ValueError(f"Expected a xla device, but got: {given}")
    return given.index


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
        _is_in_bad_fork=fork_guard.in_child,
        synchronize=synchronize,
        get_device_name=get_device_name,
        memory_allocated=memory_allocated,
        empty_cache=lambda: None,  # no cache: a buffer is freed with its last tensor
        is_bf16_supported=lambda: True,
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        manual_seed=lambda seed: randomness.manual_seed(seed),
        manual_seed_all=randomness.manual_seed_all,
        seed=lambda: randomness.manual_seed(torch.Generator().seed()),
        seed_all=lambda: randomness.manual_seed_all(torch.Generator().seed()),
        initial_seed=lambda: randomness.initial_seed(),
        get_rng_state=randomness.get_rng_state,
        set_rng_state=randomness.set_rng_state,
        get_rng_state_all=randomness.get_rng_state_all,
        set_rng_state_all=randomness.set_rng_state_all,
    )
    torch._register_device_module("xla", module)
