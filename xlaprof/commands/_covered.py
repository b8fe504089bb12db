"""Modules that xlaprof has loaded and that cover files of the program: a queue.py beside the script, a folder rich.

The program finds its own, as without xlaprof, which goes on with those that it has. (A file xlaprof.py beside a script
stays covered.)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from types import ModuleType

_taken: dict[str, ModuleType] = {}  # out of the program's way


def uncover(folder: str) -> None:
    """Forget the modules in whose place a program whose ``sys.path`` begins with ``folder`` finds another."""
    loaded = {name for name in sys.modules if "." not in name} - {"__main__", "xlaprof"}
    covering = {name for name in loaded if _is_in(folder, name) and not _from(folder, name)}
    if covering:
        # what every program finds loaded, by site and its .pth files, covers the program's files without xlaprof, too
        bare = [sys.executable, "-P", "-c", "import sys; print(*sys.modules)"]
        covering -= set(subprocess.run(bare, capture_output=True, text=True, check=False).stdout.split())
    _taken.update(_take(covering))


@contextmanager
def covered(folder: str) -> Iterator[None]:
    """xlaprof's modules again, and none of ``folder``: for its imports before the program begins and after its end."""
    path = sys.path[:]
    theirs = _take({name for name in sys.modules if "." not in name and name != "__main__" and _from(folder, name)})
    sys.modules.update(_taken)
    sys.path[:] = [entry for entry in path if entry != folder]
    try:
        yield
    finally:
        sys.path[:] = path
        _taken.update(_take({name.partition(".")[0] for name in _taken}))
        sys.modules.update(theirs)


def _take(tops: set[str]) -> dict[str, ModuleType]:
    """Out of ``sys.modules``: modules and what is below them."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in tops}


def _is_in(folder: str, name: str) -> bool:
    """Whether ``name`` would be imported from ``folder``: what is built in is found first."""
    if BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name):
        return False
    spec = PathFinder.find_spec(name, [folder])
    return spec is not None and spec.has_location


def _from(folder: str, name: str) -> bool:
    """Whether the module ``name`` was loaded from ``folder``."""
    spec, there = getattr(sys.modules[name], "__spec__", None), PathFinder.find_spec(name, [folder])
    return spec is not None and there is not None and there.has_location and spec.origin == there.origin
