"""Work to be done when a module is imported, if it ever is."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call ``then`` once the module ``name`` is imported: at once, if it is. The function returned cancels that."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        then()
        return lambda: None
    finder = Waiting(name, then)
    sys.meta_path.insert(0, finder)
    return finder.cancel


class Waiting(importlib.abc.MetaPathFinder):
    """Finds one module as it would have been found, with a loader that calls ``then`` after it has loaded it."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self._then = then
        self._searching: set[int] = set()  # threads that look for the module among the other finders

    def cancel(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def loaded(self) -> None:
        if self in sys.meta_path:
            self.cancel()
            self._then()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        thread = threading.get_ident()
        if name != self.name or thread in self._searching:
            return None
        self._searching.add(thread)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching.discard(thread)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


def waited_for(spec: ModuleSpec) -> ModuleSpec:
    """``spec`` as those who wait for its module want it loaded; for finders that do not ask the finders after them."""
    for finder in sys.meta_path:
        if isinstance(finder, Waiting) and finder.name == spec.name:
            spec.loader = _Loader(spec.loader, finder)
    return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, waiting: Waiting) -> None:
        self._loader = loader
        self._waiting = waiting

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = self._loader
        if module.__loader__ is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._waiting.loaded()
