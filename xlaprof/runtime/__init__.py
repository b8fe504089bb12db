"""The embedded LazyTensor runtime: ``torch.device("xla")`` in pure Python over jaxlib.

Importing this module makes the device work::

    import torch, xlaprof.runtime as xr

    model = Model().to("xla")
    for x, y in batches:
        loss = loss_fn(model(x.to("xla")), y.to("xla"))   # recorded, not run
        loss.backward()
        optimizer.step()
        xr.sync()                                          # the barrier: compiled once, run

Operations are recorded lazily and run at a barrier (:func:`sync`) or when a value is read.
"""

from __future__ import annotations

import os as _os

try:
    import torch

    import jax as _jax  # noqa: F401  # isort: skip  # not used here: to fail before anything else does
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f'xlaprof.runtime needs {_error.name}, which is not installed: pip install "xlaprof[runtime]"', name=_error.name
    ) from None

from . import metrics, profiler
from . import wiring as _wiring
from .execution.build import set_custom_compile_options
from .execution.kept import persistent as _persistent
from .execution.kept.persistent import initialize_cache
from .execution.memory import memory_info
from .execution.program import cache as _cache
from .execution.value_checks import debug_checks
from .modes.barriers import mark_step, optimizer_step, sync, wait_device_ops
from .modes.closures import add_step_closure
from .modes.compile import compile, step
from .modes.eager import eager_mode, eager_mode_context, is_eager_mode
from .tape import randomness as _randomness
from .tape import tapes as _tapes
from .tape.generator import Generator
from .tape.randomness import get_rng_state, set_rng_state
from .trace.tensor import XLATensor
from .transfer.interchange import from_jax, to_jax
from .warming.warm import Warmed, warm

_wiring.install()
if _os.environ.get("XLA_PERSISTENT_CACHE_PATH"):  # PyTorch/XLA's variable
    initialize_cache(_os.environ["XLA_PERSISTENT_CACHE_PATH"])

__all__ = [
    "Generator",
    "Warmed",
    "XLATensor",
    "add_step_closure",
    "clear_compile_cache",
    "compile",
    "debug_checks",
    "device",
    "device_count",
    "device_type",
    "eager_mode",
    "eager_mode_context",
    "forget_graphs",
    "from_jax",
    "get_rng_state",
    "initialize_cache",
    "is_eager_mode",
    "manual_seed",
    "mark_step",
    "memory_info",
    "metrics",
    "optimizer_step",
    "profiler",
    "set_custom_compile_options",
    "set_rng_state",
    "step",
    "sync",
    "to_jax",
    "wait_device_ops",
    "warm",
]


def device(index: int | None = None) -> torch.device:
    """The device ``xla:index``; the current one by default."""
    return _tapes.tape(index).torch_device


def device_count() -> int:
    """Number of ``xla`` devices of this process."""
    return _tapes.count()


def device_type() -> str:
    """The hardware behind the ``xla`` device: ``"CPU"``, ``"CUDA"`` or ``"TPU"``, as in ``PJRT_DEVICE``."""
    return _tapes.device_type()


def manual_seed(seed: int, device: torch.device | str | int | None = None) -> None:
    """Seed the random numbers of ``device``, by default of all ``xla`` devices. Nothing is compiled for a new seed."""
    if device is None:
        _randomness.manual_seed_all(seed)
    else:
        _randomness.manual_seed(seed, device)


def clear_compile_cache() -> None:
    """Forget all compiled programs of this process; the next barriers compile again."""
    _cache.clear()
    _persistent.look_no_more()


def forget_graphs() -> None:
    """Run what is recorded and wait for it, then forget every graph and every program.

    What follows is compiled, and compared with other graphs, as in a new process. Tensors keep their values. Functions
    under ``torch.compile`` keep their programs until ``torch._dynamo.reset()``.
    """
    sync(wait=True, reset_scope=False)
    for tape in _tapes.existing():
        tape.forget()
    clear_compile_cache()
