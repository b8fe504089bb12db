"""Work to be done when a module is imported, if it ever is."""

from __future__ import annotations

from xlaprof.when_imported import when_imported

__all__ = ["when_imported"]
