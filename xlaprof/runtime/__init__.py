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

import torch

from .pytorch import device_guard as _device_guard

_device_guard.install()

from . import dynamo as _dynamo  # noqa: E402
from . import metrics, profiler  # noqa: E402
from . import wiring as _wiring  # noqa: E402
from .dispatch import composites as _composites  # noqa: E402
from .dispatch import formless as _formless  # noqa: E402
from .dispatch import masks as _masks  # noqa: E402
from .dispatch import special, untyped_storage  # noqa: E402
from .execution.memory import memory_info  # noqa: E402
from .execution.persistent import initialize_cache  # noqa: E402
from .execution.program import cache as _cache  # noqa: E402
from .execution.program import set_custom_compile_options  # noqa: E402
from .execution.value_checks import debug_checks  # noqa: E402
from .modes.barriers import mark_step, optimizer_step, sync, wait_device_ops  # noqa: E402
from .modes.closures import add_step_closure  # noqa: E402
from .modes.compile import compile, step  # noqa: E402
from .modes.eager import eager_mode, eager_mode_context, is_eager_mode  # noqa: E402
from .observing import observe  # noqa: E402
from .pytorch import (  # noqa: E402
    autocast,
    autograd,
    default_dtype,
    serialization,
    torch_module,
)
from .pytorch import chunked_loss as _chunked_loss  # noqa: E402
from .pytorch import fork_guard as _forks  # noqa: E402
from .pytorch import fused as _fused  # noqa: E402
from .pytorch import grad_scaler as _grad_scaler  # noqa: E402
from .pytorch import higher_order as _higher_order  # noqa: E402
from .pytorch import modules as _modules  # noqa: E402
from .tape import randomness  # noqa: E402
from .tape import tapes as _tapes  # noqa: E402
from .tape.generator import Generator  # noqa: E402
from .tape.randomness import get_rng_state, set_rng_state  # noqa: E402
from .trace.tensor import XLATensor  # noqa: E402
from .transfer import printing as _printing  # noqa: E402
from .transfer.interchange import from_jax, to_jax  # noqa: E402

if _os.environ.get("XLA_PERSISTENT_CACHE_PATH"):  # PyTorch/XLA's variable
    initialize_cache(_os.environ["XLA_PERSISTENT_CACHE_PATH"])
assert untyped_storage  # imported for its operators: t_, set_, resize_...
assert _masks  # likewise: what selects by values
assert _printing  # likewise: the tensor's text
assert _grad_scaler  # likewise: what GradScaler needs
special.install()
_higher_order.install()
_composites.install()
_formless.install()
_forks.install()
autocast.install()
autograd.install()
_fused.install()
_chunked_loss.install()
torch_module.install()
serialization.install()
_modules.install()
randomness.install()
_wiring.install()
default_dtype.install()
observe.install()
_dynamo.install()

__all__ = [
    "Generator",
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
]


def device(index: int | None = None) -> torch.device:
    """The device ``xla:index``; the current one by default."""
    return _tapes.tape(index).torch_device


def device_count() -> int:
    """Number of ``xla`` devices of this process."""
    return _tapes.count()


def device_type() -> str:
    """What is behind the ``xla`` device: ``"CPU"``, ``"CUDA"`` or ``"TPU"``, as ``PJRT_DEVICE`` has it."""
    return _tapes.device_type()


def manual_seed(seed: int, device: torch.device | str | int | None = None) -> None:
    """Seed the random numbers of ``device``, by default of all ``xla`` devices. Nothing is compiled for a new seed."""
    if device is None:
        randomness.manual_seed_all(seed)
    else:
        randomness.manual_seed(seed, device)


def clear_compile_cache() -> None:
    """Forget all compiled programs of this process; the next barriers compile again."""
    _cache.clear()
