"""The facade's modules get their names from the runtime (:mod:`._names`), which is imported at first use."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from xlaprof.import_hook import HOME, NAME
from xlaprof.torch_xla._names import TABLE


def homes(module: str) -> dict[str, tuple[str, str]]:
    """Each name of ``module`` in the table -> the module it lives in, and its name there."""
    found = {}
    for home, names in TABLE.get(module.removeprefix(HOME).removeprefix("."), {}).items():
        for entry in names.split():
            name, _, there = (entry, "", "") if entry == "=" else entry.partition("=")
            found[name] = (home, there or name)
    return found


def served(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a facade ``module``: its names of the table, and its submodules.

    Both are imported at first use. For any other name an ``AttributeError`` is raised, with PyTorch/XLA's module name.
    """
    names = homes(module)
    rest, _ = names.pop("*", ("", ""))
    peer = NAME + module.removeprefix(HOME)

    def __getattr__(name: str) -> Any:
        if name in names:
            home, there = names[name]
            try:
                value = getattr(importlib.import_module(home), there)
            except (AttributeError, ModuleNotFoundError) as error:
                raise AttributeError(f"{peer}.{name} is not served: {error}", name=name) from error
            setattr(sys.modules[module], name, value)
            return value
        if rest and (name == "__all__" or not name.startswith("__")):
            return getattr(importlib.import_module(rest), name)
        if name == "__all__":
            return [*names, *(name for name in vars(sys.modules[module]) if not name.startswith("_"))]
        is_submodule = not name.startswith("__") and "__path__" in vars(sys.modules[module])
        if is_submodule and find_spec(f"{module}.{name}") is not None:
            return importlib.import_module(f"{module}.{name}")
        raise AttributeError(f"module {peer!r} has no attribute {name!r} (served by xlaprof)", name=name)

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[module]), *names})

    return __getattr__, __dir__


class _Finder(MetaPathFinder, Loader):
    """Finds the modules that the table alone describes: those without a file."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = name.removeprefix(f"{HOME}.")
        if module == name or module not in TABLE:
            return None
        file = os.path.join(os.path.dirname(__file__), *module.split("."))
        if os.path.isfile(f"{file}.py") or os.path.isfile(os.path.join(file, "__init__.py")):
            return None
        is_package = any(other.startswith(f"{module}.") for other in TABLE)
        return ModuleSpec(name, self, origin=__file__, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        names = homes(module.__name__)
        if "=" in names:
            sys.modules[module.__name__] = importlib.import_module(names["="][0])
            return
        module.__doc__ = f"``{NAME}{module.__name__.removeprefix(HOME)}``."
        contents: Any = module
        contents.__getattr__, contents.__dir__ = served(module.__name__)


if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
