"""Is the process in eager mode, or in a dry run? The doors by which lower rooms reach higher ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from xlaprof.runtime.trace.storage import Storage

#: runs what was recorded, for operations recorded outside of dispatch. ``None``: lazy mode
run_recorded: Callable[[], None] | None = None
#: gives the current values of storages of a tape, whose lock is held. ``None``: lazy mode
eager_values: Callable[[Any, list[Storage]], list[Any]] | None = None
#: waits for what eager mode has run on a device, or on all; set when eager mode is first used
wait_for_eager: Callable[[Any], None] | None = None


class DryRun(Protocol):
    """What stands in for the device while a function is only to find its graphs. ``plan``: of execution's."""

    def keep(self, storage: Storage) -> None:
        """``storage`` is about to be written to."""

    def run(self, tape: Any, plan: Any, storages: list[Storage]) -> dict[int, Any]:
        """What the graph of ``plan`` leaves for ``storages``, by slot."""

    def read(self, tape: Any, array: Any) -> Any:
        """What a read of ``array`` gives."""


#: set while a function is only to find its graphs. ``None``: the device runs
dry: DryRun | None = None

#: name of the function being compiled (:func:`xlaprof.runtime.modes.compile.compile`); empty outside of one
graph_name = ""


def get_graph_name() -> str:
    """Name of the function being compiled."""
    return graph_name


def set_graph_name(name: str) -> None:
    """Set the name that messages give to what is recorded from now on."""
    global graph_name
    graph_name = name
