"""``torch_xla._internal.pjrt``: running a function on every device, as PyTorch/XLA's own tests do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.multiprocessing.spawn import ProcessRaisedException

from xlaprof.runtime import distributed


def run_multiprocess(fn: Callable[..., Any], *args: Any, start_method: str = "spawn", **kwargs: Any) -> dict[int, Any]:
    """Run ``fn(*args, **kwargs)`` in one process per device; return the results by global ordinal.

    Raises what ``fn`` raised.
    """
    try:
        return distributed.run_multiprocess(fn, *args, start_method=start_method, **kwargs)
    except ProcessRaisedException as error:
        cause = error.__cause__
        if cause is None:  # it cannot be sent from one process to another
            raise
        cause.add_note(error.msg)
        raise cause from None


def spawn(
    fn: Callable[..., Any], nprocs: int | None = None, start_method: str = "spawn", args: tuple[Any, ...] = ()
) -> None:
    """``xmp.spawn``, with its arguments in another order."""
    distributed.spawn(fn, args, nprocs, start_method=start_method)


def spawn_threads(fn: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
    """``fn(index, *args)`` once for each device; several devices have a process each, in place of threads."""
    distributed.spawn(fn, args)
