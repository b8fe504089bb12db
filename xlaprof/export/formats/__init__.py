"""The formats of ``xlaprof export --to``: one file each, found by its name.

A format is a module with a docstring, whose first line says what it writes, and ``export(job) -> Written``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from xlaprof.export.written import Job, Written


def available() -> list[str]:
    """Names of the formats there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Callable[[Job], Written]:
    """The ``export`` of format ``name``, which is one of :func:`available`."""
    export: Callable[[Job], Written] = importlib.import_module(f"{__name__}.{name}").export
    return export
