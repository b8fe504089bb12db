"""Ranks that a program starts by ``torch.multiprocessing.spawn``: each records as the program does, a log of its own.

While a recording is on, the function that starts them hands each the recording to repeat. Their ranks are the numbers
that torch gives them, beginning at 0 on each host; where the environment says RANK and WORLD_SIZE, that counts.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xlaprof.vocabulary import STANDARD

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Detail, Recorder

_MODULE = "torch.multiprocessing.spawn"


class Spawned:
    name = _MODULE
    module = _MODULE
    vocabulary = STANDARD
    announces_itself = True  # there is nothing to say where nothing is started

    def attach(self, rec: Recorder) -> _Attached:
        return _Attached(rec)


class _Attached:
    def __init__(self, rec: Recorder) -> None:
        from xlaprof.recording import recorder
        from xlaprof.recording.logfile import rank_and_world

        # torch.multiprocessing has the functions of this module, and one of them in the module's place
        self._places = [sys.modules[_MODULE], sys.modules["torch.multiprocessing"]]
        self._start = start = self._places[0].start_processes
        signature = inspect.signature(start)

        @functools.wraps(start)
        def start_processes(*args: Any, **kwargs: Any) -> Any:
            if (
                recorder.active is not rec or rank_and_world()[1] > 1
            ):  # of this process, which is a rank, there is a log
                return start(*args, **kwargs)
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return start(*args, **kwargs)  # which says what is wrong
            world = given.arguments.get("nprocs", 1)
            if isinstance(world, int) and world > 1:
                told = rec.path, rec.detail, rec.mode, rec.keeps_code
                given.arguments["fn"] = Rank(given.arguments["fn"], world, *told)
            return start(*given.args, **given.kwargs)

        self._watched = start_processes
        self._replace(start, start_processes)

    def _replace(self, old: Any, new: Any) -> None:
        for place in self._places:
            if getattr(place, "start_processes", None) is old:
                place.start_processes = new  # type: ignore[attr-defined]

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {}, {}

    def detach(self) -> None:
        self._replace(self._watched, self._start)


class Rank:
    """What each process is to run, in place of ``fn``: the same, recorded."""

    def __init__(self, fn: Callable[..., Any], world: int, path: str, detail: Detail, mode: int, code: bool) -> None:
        self.fn, self.world = fn, world
        self._recording: dict[str, Any] = {"path": path, "detail": detail, "mode": mode, "code": code}

    def __call__(self, index: int, *args: Any) -> Any:
        from xlaprof.errors import warn
        from xlaprof.recording import recorder, trace  # noqa: F401  # the program's scopes need it
        from xlaprof.recording.logfile import be_rank

        be_rank(index, self.world)
        try:
            recording = recorder.record(**self._recording, joinable=True).start()
        except recorder.RecordingError as error:
            warn(f"rank {index} is not recorded: {error}")
            return self.fn(index, *args)
        with recording:
            return self.fn(index, *args)


LIVE = Spawned()
