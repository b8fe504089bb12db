"""Which sources there are: the modules of this folder, and those that installed packages name.

A package plugs in with the entry point group ``xlaprof.sources``::

    [project.entry-points."xlaprof.sources"]
    my_framework = "my_package.xlaprof_source"

where the module declares ``LIVE`` and ``FILE`` as those here do. A module that cannot be imported costs one line on
stderr, and nothing else.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType

from xlaprof import sources
from xlaprof.errors import warn

from .protocol import FileSource, LiveSource

GROUP = "xlaprof.sources"


def live_sources() -> tuple[LiveSource, ...]:
    return tuple(module.LIVE for module in modules() if hasattr(module, "LIVE"))


def file_sources() -> tuple[FileSource, ...]:
    return tuple(module.FILE for module in modules() if hasattr(module, "FILE"))


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """Imported once: xlaprof's own first, by name, then those of packages."""
    return tuple(_modules())


def _modules() -> Iterator[ModuleType]:
    for own in sorted(pkgutil.iter_modules(sources.__path__), key=lambda found: found.name):
        yield from _load(own.name, functools.partial(importlib.import_module, f"{sources.__name__}.{own.name}"))
    from importlib import metadata  # 20 ms, and most paths are recognised without

    for point in metadata.entry_points(group=GROUP):
        yield from _load(f"{point.name} ({point.value})", point.load)


def _load(name: str, load: Callable[[], ModuleType]) -> Iterator[ModuleType]:
    try:
        yield load()
    except Exception as error:
        warn(f"the source {name} is left out: {type(error).__name__}: {error}")
