"""Rendezvous of ranks outside of graphs: all wait for each other, and each gets the others' payloads."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np
import torch

from xlaprof.runtime.execution import barrier
from xlaprof.runtime.tape import tapes

from . import faults, world

#: what numpy's arrays and numbers are made of in a pickle
_NUMPY: list[Any] = [
    np.ndarray,
    np.dtype,
    np.zeros(0).__reduce__()[0],
    np.float64(0).__reduce__()[0],
    *{type(np.dtype(code)) for code in np.typecodes["All"]},
]


def exchange(tag: str, payload: bytes = b"", ranks: Sequence[int] | None = None) -> list[bytes]:
    """The payloads of ``ranks`` (by default all), in their order, once all have come to ``tag``. Touches no device.

    Raises :class:`~.faults.RankFailure` where one of them cannot come any more.
    """
    here = world.current()
    members = sorted(set(range(here.size) if ranks is None else ranks))
    if not all(0 <= rank < here.size for rank in members):
        raise ValueError(f"ranks {members} to meet at '{tag}': there are {here.size}, 0 to {here.size - 1}")
    if here.rank not in members:
        raise ValueError(f"rank {here.rank} is none of the ranks {members} that meet at '{tag}'")
    link = world.link()
    if link is None or len(members) == 1:
        return [payload]
    together = link.meet(tag, payload, members)
    if together is None:
        raise faults.verdict() or faults.RankFailure(f"the world ended before all came to '{tag}'")
    return together


def exchange_objects(tag: str, data: Any, ranks: Sequence[int] | None = None) -> list[Any]:
    """:func:`exchange` of tensors, which arrive on the host, numpy arrays, numbers, texts, and lists and dicts of them.

    Nothing that a payload holds is run. Raises ``TypeError`` for an object of another class, unless
    ``torch.serialization.add_safe_globals`` allows it.
    """
    with io.BytesIO() as out:
        torch.save(data, out)
        payload = out.getvalue()
    parts = exchange(tag, payload, ranks)
    with torch.serialization.safe_globals(_NUMPY):
        for part in parts:
            if others := torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(part)):
                raise TypeError(
                    f"ranks exchange tensors, arrays, numbers, texts, lists and dicts, at '{tag}' not "
                    f"{', '.join(others)}: "
                    "allow the class with torch.serialization.add_safe_globals([...]) in all ranks"
                )
        return [torch.load(io.BytesIO(part), map_location="cpu", weights_only=True) for part in parts]


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Wait until all ranks (or those in ``replicas``) have come to ``tag``; the payloads of all, in their order.

    Also a barrier for this rank's device: pending operations run, and have ended when this returns.
    """
    return xla_rendezvous(payload, list(replicas) or None, tag)


def xla_rendezvous(payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None) -> list[bytes]:
    """:func:`rendezvous` with the arguments in another order."""
    if not isinstance(payload, bytes):
        raise TypeError(f"`payload` must be bytes, not {type(payload)}")
    there = tapes.existing()
    if there:
        barrier.barriers(there, "rendezvous", wait=True)
    return exchange(tag or "rendezvous", payload, ordinals)


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """``reduce_fn([data of rank 0, data of rank 1, ...])``, on the host of each rank.

    ``data`` is what :func:`exchange_objects` takes; tensors arrive on the host.
    """
    return reduce_fn(exchange_objects(tag, data))


def is_master_ordinal(local: bool = True) -> bool:
    """Is this the first rank of its host or, with ``local=False``, of all?"""
    return (world.local_ordinal() if local else world.global_ordinal()) == 0


def master_print(*args: Any, fd: IO[str] | None = None, local: bool = False, flush: bool = False) -> None:
    """``print`` in rank 0 only or, with ``local``, in the first rank of each host."""
    if is_master_ordinal(local=local):
        print(*args, file=sys.stdout if fd is None else fd, flush=flush)
