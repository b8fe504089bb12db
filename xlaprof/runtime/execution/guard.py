"""``full_graph=True``: nothing runs before the compiled function returns."""

from __future__ import annotations

from xlaprof.recording import stacks
from xlaprof.runtime.tape import mode
from xlaprof.runtime.tape.graph import place
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Storage, View

_allowed = True


class UnexpectedExecution(RuntimeError):
    """A function compiled with ``full_graph=True`` would be cut in two."""

    _xla_final = True  # raised as it is: no other way to compute is tried


def get_allow_execution() -> bool:
    """May a graph run before the function being compiled has returned?"""
    return _allowed


def set_allow_execution(allow: bool) -> None:
    """Allow or refuse (``False``) to run graphs from now on, for the whole process."""
    global _allowed
    _allowed = allow


def require_allowed(tape: Tape, storages: list[Storage], what: str) -> None:
    """Raise :class:`UnexpectedExecution` if graphs may not run, and ``what`` would run one for ``storages``."""
    if _allowed:
        return
    pending = [storage for storage in storages if storage.epoch == tape.epoch and storage.slot not in tape.input_at]
    views = [storage for storage in storages if storage.epoch != tape.epoch and isinstance(storage, View)]
    if not pending and not views:
        return
    frames = stacks.user_frames(1)
    at = f" at {frames[0].file}:{frames[0].line}" if frames else ""
    made = ""
    if pending:
        node = next((n for n in tape.node.path() if any(out.slot == pending[0].slot for out in n.outs)), None)
        made = f" needs the value of {place(node)}, which" if node is not None else ""
    raise UnexpectedExecution(
        "Unexpected execution happens inside the compiled function, exiting\n"
        f"{mode.graph_name or 'the function'} is to be one graph (full_graph=True), but {what}{at}{made or ' of it'} "
        "is not computed before the function has returned: read values after it, decide on the device "
        "(torch.where), or leave out full_graph"
    )
