"""``XLA_SAVE_TENSORS_FILE``: every graph that runs, appended to a file as PyTorch/XLA writes it there.

``XLA_SAVE_TENSORS_FMT`` is ``text`` (operations, the default), ``hlo``, ``dot`` or ``stablehlo``. Each device has a
file of its own, ``FILE.0``, ``FILE.1``...; in a job each rank has one. The variables are read when a graph is compiled,
so that a program may set them while it runs.
"""

from __future__ import annotations

import operator
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xlaprof.runtime.tape import mode

from . import debug, hooks

if TYPE_CHECKING:
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape

FORMATS = ("text", "hlo", "dot", "stablehlo")

#: the file; nothing is written while it is empty
path = ""
_format = "text"
#: writes a graph as text, given its format, tape and graph; the torch_xla facade, which has the formats, sets it
render: Callable[[str, Tape, Graph], str] | None = None
#: The number in the file's name: the device's, or in a job of several processes the rank, which
#: :mod:`xlaprof.runtime.distributed` knows.
ordinal: Callable[[Tape], int] = operator.attrgetter("index")
_rendered: dict[tuple[str, str], str] = {}
_lock = threading.Lock()


def _read_environment(*_: object) -> None:
    """Read the environment. For an unknown format, warn, and write nothing."""
    global path, _format
    path = os.environ.get("XLA_SAVE_TENSORS_FILE", "") if render is not None else ""
    if not path:
        return
    _format = os.environ.get("XLA_SAVE_TENSORS_FMT", "text")
    if _format not in FORMATS:
        path = ""
        known = ", ".join(FORMATS)
        warnings.warn(f"no graphs are saved: XLA_SAVE_TENSORS_FMT={_format} is none of {known}", stacklevel=2)


def _save(tape: Tape, graph: Graph, trigger: str, results: Sequence[Any]) -> None:
    """Append ``graph``, which runs now with the arrays ``results``, to the file."""
    if not path:
        return
    assert render is not None
    key = (_format, graph.hash)
    text = _rendered.get(key)
    if text is None:
        text = _rendered[key] = render(_format, tape, graph)
    frames = "".join(f"  {frame}\n" for frame in debug.frames_of(trigger))
    name = f"Graph Name: {mode.graph_name}\n" if mode.graph_name else ""
    block = f"[ScheduleSyncTensorsGraph]\n{name}TensorsGraphInfo:\n{frames}\nRoot Hashes: ({graph.hash})\n"
    block += f"\n## BEGIN_GRAPH\n{text.rstrip()}\n## END_GRAPH\n\n\n"
    if tape.partition is not None and _format == "hlo":
        lines = "".join(f"{array.dtype}{list(array.shape)} {array.sharding}\n" for array in results)
        block += f"\n#OUTPUT_SHARDING_BEGIN\n\n{lines}\n#OUTPUT_SHARDING_END\n\n"
    with _lock, open(f"{path}.{ordinal(tape)}", "a") as file:
        file.write(block)


hooks.compiling.append(_read_environment)
hooks.executing.append(_save)
