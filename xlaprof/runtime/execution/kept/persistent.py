"""Compiled programs kept between runs: in this user's folder, or in jax's cache where somebody asked for that.

The folder's programs are found by what their graph says, before it is lowered. jax's cache wants the lowered program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import jax

from xlaprof.recording import recorder
from xlaprof.runtime import metrics
from xlaprof.runtime.execution.program import Needs, Timing, cache
from xlaprof.runtime.tape.graph import Graph

from . import folder as folders
from . import names

_hits = 0
_forgotten = False  # clear_computation_cache() was called: what the folder holds counts no more
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

    (``torch_xla.runtime.clear_computation_cache``.) Functions under ``torch.compile`` keep their programs. The user's
    folder of programs keeps them for other processes; this one looks there no more.
    """
    look_no_more()
    cache.clear()
    kept_in = folder()
    if kept_in is None or jax.config.jax_persistent_cache_min_compile_time_secs == float("inf"):  # type: ignore[attr-defined]
        return
    for kept in Path(kept_in).iterdir():
        if kept.name.endswith(("-cache", "-atime")):  # jax's file names; other files stay
            kept.unlink(missing_ok=True)


def look_no_more() -> None:
    """From now on this process takes no program from the user's folder; what it compiles is kept there all the same."""
    global _forgotten
    _forgotten = True


def folder() -> str | None:
    """The folder of :func:`initialize_cache`, or None."""
    found: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    return found


def compiled(
    graph: Graph,
    kind: str,
    device: jax.Device,
    donated: tuple[int, ...],
    options: dict[str, Any],
    lower: Callable[[], Any],
    unkept: str = "",
) -> tuple[Any, Timing]:
    """The program of ``kind`` for ``graph`` on ``device``; ``lower()`` gives what jax lowered.

    ``unkept`` says why it cannot be kept in the user's folder. Called in jax's 64-bit mode, as ``lower`` is.
    """
    start = perf_counter_ns()
    by_jax = folder() is not None
    programs = None if by_jax or unkept else _programs()
    if programs is not None and not names.says_all(graph):
        programs, unkept = None, "it holds a function over jax"
    if programs is not None:
        name = names.name_of(graph, kind, device, donated, options)
        found = None if _forgotten else programs.get(name, device)
        if found is not None:
            took = perf_counter_ns() - start
            return found.compiled, Timing(0, took, True, max(found.took - took, 0), True, "", found.needs)
        start = perf_counter_ns()
    lowered = lower()
    lowered_at = perf_counter_ns()
    before = _hits
    program = lowered.compile(options)
    end = perf_counter_ns()
    needs = None
    if programs is not None or recorder.active is not None:  # a hundredth of what it takes to compile
        needs = _needs(program)
    if by_jax:
        metrics.count("PersistentCacheHit" if _hits > before else "PersistentCacheMiss")
        unkept = ""
    elif programs is not None:
        unkept = programs.put(name, program, end - start, needs)
    else:
        unkept = unkept or "XLAPROF_CACHE_DIR is off"
    return program, Timing(lowered_at - start, end - lowered_at, _hits > before, 0, not unkept, unkept, needs, lowered)


def _needs(program: Any) -> Needs | None:
    asked = program.memory_analysis()
    if asked is None:  # a backend that does not say
        return None
    return Needs(
        asked.argument_size_in_bytes,
        asked.output_size_in_bytes,
        asked.temp_size_in_bytes,
        asked.alias_size_in_bytes,
    )


@functools.cache
def _programs() -> folders.ProgramFolder | None:
    return folders.from_environment()


def _on_jax_event(event: str, **_: Any) -> None:
    global _hits
    if event == "/jax/compilation_cache/cache_hits":
        _hits += 1
