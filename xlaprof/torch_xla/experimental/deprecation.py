"""``torch_xla.experimental.deprecation``: old names of functions, which warn once with the new name."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(
    module: ModuleType, new: Callable[P, R], old_name: str | None = None, extra_msg: str | None = None
) -> Callable[P, R]:
    """``new`` under an old name of ``module``, its own by default; the first call warns in the log."""
    return _warning(f"{module.__name__}.{old_name or new.__name__}", new, new, extra_msg)


def mark_deprecated(
    new: Callable[..., Any], extra_msg: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of old functions: ``new`` is called in their place."""
    return lambda old: _warning(old.__name__, new, old, extra_msg)


def register_deprecated(module: ModuleType, new: Callable[..., Any]) -> None:
    """Give ``module`` the function ``new``, under its name."""
    setattr(module, new.__name__, deprecated(module, new))


def _warning(name: str, new: Callable[P, R], like: Callable[..., Any], more: str | None) -> Callable[P, R]:
    """``new``, with the name and documentation of ``like``, which warns when it is first called."""

    @functools.cache
    def warn() -> None:
        logger = logging.getLogger("torch_xla")
        advice = f"{name} is deprecated. Use {new.__module__}.{new.__name__} instead."
        logger.warning(f"{advice} {more}" if more else advice)

    @functools.wraps(like)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        warn()
        return new(*args, **kwargs)

    return wrapped
