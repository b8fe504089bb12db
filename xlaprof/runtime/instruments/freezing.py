"""What the runtime is about to compile, for ``xlaprof.frozen``: told with how the graph differs from the known ones."""

from __future__ import annotations

from collections.abc import Callable

from xlaprof.recording import frozen, stacks
from xlaprof.runtime.tape import mode
from xlaprof.runtime.tape.graph import Graph

from . import hooks

_NEW = "this graph is new because "


def _watch(judge: frozen.Judge) -> Callable[[], None]:
    def compiling(trigger: str, graph: Graph, differs: hooks.Differs) -> None:
        why = ("; ".join(differs()) or "no earlier graph is like it").removeprefix(_NEW)
        name = mode.graph_name or f"the graph that ends here ({trigger})"
        judge(frozen.Compilation("xla", name, stacks.user_frames(), why, why.partition(":")[0]))

    hooks.compiling.append(compiling)
    return lambda: hooks.compiling.remove(compiling)


frozen.add_watch(_watch)
