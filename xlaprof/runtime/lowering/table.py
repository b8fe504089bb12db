"""The table of all lowerings: :func:`load` imports every file of this room, and each registers its own."""

from __future__ import annotations

import importlib
import pkgutil

from xlaprof.runtime import lowering

from .registry import LOWERINGS, RANDOM, STATIC


def load() -> None:
    """Import each family of lowerings, which fills the table."""
    for family in pkgutil.iter_modules(lowering.__path__):
        importlib.import_module(f"{lowering.__name__}.{family.name}")


load()

__all__ = ["LOWERINGS", "RANDOM", "STATIC", "load"]
