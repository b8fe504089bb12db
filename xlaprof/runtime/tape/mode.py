"""Which mode the process is in, for those who only ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xlaprof.runtime.trace.storage import Storage

#: eager mode's, or ``None``: to be called when an operation that did not come by the dispatch function was recorded
done: Callable[[], None] | None = None
#: eager mode's, or ``None``: the present values of storages of a tape, whose lock is held
values: Callable[[Any, list[Storage]], list[Any]] | None = None
#: waits for what eager mode has run on a device, or on all; set from its first use on
wait: Callable[[Any], None] | None = None

#: what the function being compiled is called (:func:`.compile.compile`); empty outside of one
graph_name = ""


def get_graph_name() -> str:
    """What the function being compiled is called."""
    return graph_name


def set_graph_name(name: str) -> None:
    """Call what is recorded from now on ``name``, in messages."""
    global graph_name
    graph_name = name
