"""Compiled programs kept in a folder between runs: jax's persistent compilation cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from xlaprof.runtime import metrics

from .program import cache

_hits = 0
_listening = False


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keep compiled programs in the folder ``path`` between runs (``torch_xla.runtime.initialize_cache``).

    This is jax's persistent compilation cache, set for the whole process. Counters: ``PersistentCacheHit``,
    ``PersistentCacheMiss``.
    """
    global _listening
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0 if not readonly else float("inf"))
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if not _listening:
        jax.monitoring.register_event_listener(_on_jax_event)
        _listening = True


def clear_computation_cache() -> None:
    """Forget every compiled program, in memory and in the folder of :func:`initialize_cache`.

    (``torch_xla.runtime.clear_computation_cache``.) Functions under ``torch.compile`` keep their programs.
    """
    cache.clear()
    kept_in = folder()
    if kept_in is None or jax.config.jax_persistent_cache_min_compile_time_secs == float("inf"):  # type: ignore[attr-defined]
        return
    for kept in Path(kept_in).iterdir():
        if kept.name.endswith(("-cache", "-atime")):  # jax's file names; other files stay
            kept.unlink(missing_ok=True)


def folder() -> str | None:
    """The folder of :func:`initialize_cache`, or None."""
    found: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    return found


def compiled(lowered: Any, options: dict[str, Any]) -> tuple[Any, bool]:
    """XLA's program for ``lowered``, of jax, and whether it was found in the folder."""
    before = _hits
    program = lowered.compile(options)
    found = _hits > before
    if folder() is not None:
        metrics.count("PersistentCacheHit" if found else "PersistentCacheMiss")
    return program, found


def _on_jax_event(event: str, **_: Any) -> None:
    global _hits
    if event == "/jax/compilation_cache/cache_hits":
        _hits += 1
