"""How the modules of this package name what the runtime provides, without importing it before it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from xlaprof.import_hook import HOME, NAME


def served(module: str, homes: dict[str, str] | None = None, submodules: Iterable[str] = ()) -> Callable[[str], Any]:
    """The ``__getattr__`` of a facade ``module``.

    ``homes`` maps names to where they live: ``"xlaprof.runtime.spmd"``, or ``"xlaprof.runtime.spmd:other_name"``.
    ``submodules`` are imported when they are named, as PyTorch/XLA's are once it is imported.
    Everything else is an ``AttributeError`` that names PyTorch/XLA's module, not ours.
    """
    homes, children = homes or {}, frozenset(submodules)
    peer = NAME + module.removeprefix(HOME)

    def __getattr__(name: str) -> Any:
        home = homes.get(name)
        if home is not None:
            place, _, there = home.partition(":")
            try:
                value = getattr(importlib.import_module(place), there or name)
            except (AttributeError, ModuleNotFoundError) as error:
                raise AttributeError(f"{peer}.{name} is not served: {error}", name=name) from error
            setattr(sys.modules[module], name, value)
            return value
        if name in children:
            return importlib.import_module(f"{module}.{name}")
        raise AttributeError(f"module {peer!r} has no attribute {name!r} (served by xlaprof)", name=name)

    return __getattr__


def names(module: str, homes: dict[str, str], submodules: Iterable[str] = ()) -> Callable[[], list[str]]:
    """The ``__dir__`` that goes with :func:`served`."""

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes, *submodules})

    return __dir__
