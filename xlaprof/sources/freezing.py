"""Has each live source that can watch what it compiles do so, once its module is imported: for ``xlaprof.frozen``."""

from __future__ import annotations

import functools
from collections.abc import Callable

from xlaprof.errors import warn
from xlaprof.recording.frozen import Judge, Watch
from xlaprof.when_imported import when_imported

from . import registry


def watch(judge: Judge) -> Callable[[], None]:
    """Watch all sources; the function returned ends that."""
    ends: list[Callable[[], None]] = []
    for source in registry.live_sources():
        begin: Watch | None = getattr(source, "watch", None)
        if begin is not None:
            ends.append(when_imported(source.module, functools.partial(_begin, source.name, begin, judge, ends)))

    def end() -> None:
        for one in ends:
            one()
        ends.clear()

    return end


def _begin(name: str, begin: Watch, judge: Judge, ends: list[Callable[[], None]]) -> None:
    """This may run inside the program's import of the module."""
    try:
        ends.append(begin(judge))
    except Exception as error:
        warn(f"{name} is not watched for compilations: {type(error).__name__}: {error}")
