"""The panels of the screen: one file each, found by its name, which is its tab's and its widget's too.

A panel is a module with a class ``PANEL``, a :class:`~xlaprof.tui.widgets.panel.Region`.
"""

from __future__ import annotations

import importlib
import pkgutil

from xlaprof.tui.widgets.panel import Region


def available() -> dict[str, type[Region]]:
    """The panels by name, in the order of their tabs."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = {name: importlib.import_module(f"{__name__}.{name}").PANEL for name in names}
    return dict(sorted(found.items(), key=lambda one: one[1].ORDER))
