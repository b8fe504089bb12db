"""``torch_xla._internal.jax_workarounds``: guards between jax and PyTorch/XLA.

Here both share one client for the devices: there is nothing to guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from xlaprof.runtime.tape import tapes

F = TypeVar("F", bound=Callable[..., Any])


def jax_import_guard() -> None:
    """Open the devices now."""
    tapes.devices()


def requires_jax(func: F) -> F:
    """``func``: jax is always there."""
    return func


@contextmanager
def jax_env_context() -> Iterator[None]:
    """The environment as it is."""
    yield
