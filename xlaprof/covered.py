"""Modules that xlaprof has loaded and that cover files of the program: a queue.py beside the script, a folder rich.

The program finds its own, as without xlaprof, which goes on with those that it has. (A file xlaprof.py beside a script
stays covered.)
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from types import ModuleType

_taken: dict[str, ModuleType] = {}  # out of the program's way
_inside = False  # covered() is at work


def uncover(folder: str) -> None:
    """Forget the modules in whose place a program whose ``sys.path`` begins with ``folder`` finds another."""
    loaded = {name for name in sys.modules if "." not in name} - {"__main__", "xlaprof"}
    covering = {name for name in loaded if _is_in(folder, name) and not _from([folder], name)}
    if covering:
        # what every program finds loaded, by site and its .pth files, covers the program's files without xlaprof, too
        bare = [sys.executable, "-P", "-c", "import sys; print(*sys.modules)"]
        covering -= set(subprocess.run(bare, capture_output=True, text=True, check=False).stdout.split())
    _taken.update(_take(covering))


@contextmanager
def covered(*folders: str) -> Iterator[None]:
    """xlaprof's modules again, and none of ``folders`` that Python has too: for imports of xlaprof's own.

    What it imports meanwhile and would cover files of ``folders`` is out of their way afterwards.
    """
    global _inside
    if _inside:
        yield
        return
    path = sys.path[:]
    rest = [entry for entry in path if entry not in folders]
    names = _named_in(folders)
    before = names & sys.modules.keys()
    theirs = _take({name for name in before if PathFinder.find_spec(name, rest) and _from(folders, name)})
    sys.modules.update(_taken)
    sys.path[:] = [*rest, *folders]  # what is nowhere else may be there: PYTHONPATH has libraries too
    _inside = True
    try:
        yield
    finally:
        _inside = False
        sys.path[:] = path
        new = (names & sys.modules.keys()) - before
        covering = {name for name in new if any(_is_in(folder, name) for folder in folders)}
        _taken.update(_take({name.partition(".")[0] for name in _taken} | covering))
        sys.modules.update(theirs)


def folders_beside_python() -> list[str]:
    """The entries of ``sys.path`` that are neither the standard library's nor those of installed packages."""
    library = os.path.dirname(os.__file__)
    return [
        entry
        for entry in sys.path
        if not entry.startswith(library) and not {"site-packages", "dist-packages"} & set(entry.split(os.sep))
    ]


def _named_in(folders: Iterable[str]) -> set[str]:
    """What modules in ``folders`` may be called."""
    names = set()
    for folder in folders:
        with suppress(OSError):
            names |= {name.partition(".")[0] for name in os.listdir(folder or ".")}
    return names - {"__main__", "xlaprof"}


def _take(tops: set[str]) -> dict[str, ModuleType]:
    """Out of ``sys.modules``: modules and what is below them."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in tops}


def _is_in(folder: str, name: str) -> bool:
    """Whether ``name`` would be imported from ``folder``: what is built in is found first."""
    if BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name):
        return False
    spec = PathFinder.find_spec(name, [folder])
    return spec is not None and spec.has_location


def _from(folders: Sequence[str], name: str) -> bool:
    """Whether the module ``name`` was loaded from the first of ``folders`` that has it."""
    spec, there = getattr(sys.modules[name], "__spec__", None), PathFinder.find_spec(name, folders)
    return spec is not None and there is not None and there.has_location and spec.origin == there.origin
