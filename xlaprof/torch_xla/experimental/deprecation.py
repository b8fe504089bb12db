"""``torch_xla.experimental.deprecation``: old names of functions, which say once what the new ones are."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(module: ModuleType, new: Callable[P, R], old_name: str | None = None) -> Callable[P, R]:
    """``new`` under an old name of ``module``, its own by default; the first call warns in the log."""
    old = f"{module.__name__}.{old_name or new.__name__}"

    @functools.wraps(new)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        once()
        return new(*args, **kwargs)

    once = _warning(old, new)
    return wrapped


def mark_deprecated(new: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of old functions: ``new`` is called in their place."""

    def decorate(old: Callable[..., Any]) -> Callable[..., Any]:
        once = _warning(old.__name__, new)

        @functools.wraps(old)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            once()
            return new(*args, **kwargs)

        return wrapped

    return decorate


def register_deprecated(module: ModuleType, new: Callable[..., Any]) -> None:
    """Give ``module`` the function ``new``, under its name."""
    setattr(module, new.__name__, deprecated(module, new))


def _warning(old: str, new: Callable[..., Any]) -> Callable[[], None]:
    @functools.cache
    def once() -> None:
        logging.getLogger("torch_xla").warning(
            "%s is deprecated. Use %s.%s instead.", old, new.__module__, new.__name__
        )

    return once
