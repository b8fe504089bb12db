"""Every family of lowerings, imported once: importing this module fills :data:`registry.LOWERINGS`."""

from __future__ import annotations

import importlib
import importlib.util

from xlaprof.runtime.lowering.registry import LOWERINGS, RANDOM, STATIC

FAMILIES = ("arithmetic",)

for _family in FAMILIES:
    importlib.import_module(f"xlaprof.runtime.lowering.{_family}")

__all__ = ["LOWERINGS", "RANDOM", "STATIC"]
