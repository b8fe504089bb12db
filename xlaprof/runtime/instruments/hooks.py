"""Where instruments attach to compilations, executions and barriers: each list is called at one moment.

Functions are called in order on the thread that runs the graph, with the tape's lock held (except
:data:`barrier_ended`), so they must not record operations. An instrument appends to these lists when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape
    from xlaprof.runtime.trace.storage import Storage

#: how a graph differs from the known ones, as lines of text, computed when called; empty where there are none
Differs = Callable[[], list[str]]

#: a graph is about to be compiled: (trigger, graph, how it differs)
compiling: list[Callable[[str, Graph, Differs], object]] = []
#: a graph was compiled: (trigger, graph, jax's compiled program)
compiled: list[Callable[[str, Graph, Any], object]] = []
#: a program was handed to the device: (tape, graph, trigger, the arrays it makes)
executing: list[Callable[[Tape, Graph, str, list[Any]], object]] = []
#: a barrier has ended: (tape, when it began, the recording if one is on, storages that got their first value)
barrier_ended: list[Callable[[Tape, int, Recorder | None, list[Storage]], object]] = []
