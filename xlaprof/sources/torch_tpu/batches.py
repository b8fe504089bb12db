"""Records of PyTorch's structured trace to TorchTPU's batches: pure, the same for a running process and for a file.

Of each batch one thread writes three records, one after the other: when it was (a ``chromium_event``), its graph and
its StableHLO (two artifacts). The first may be missing. Records of anything else are passed over; what is TorchTPU's
and cannot be so raises ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

#: in each record of TorchTPU's eager mode, as the category of its moments and the begin of its artifacts' names
MARK = "torchtpu_eager"
GRAPH = f"{MARK}_aten_graph"
_OPEN = 64  # threads of which the begin of a batch is kept

_UnixUs = Annotated[float, msgspec.Meta(ge=0, le=4e15)]  # up to 2096
_Us = Annotated[float, msgspec.Meta(ge=0, le=1e12)]  # up to 11 days


class _Args(msgspec.Struct):
    cache_hit: bool
    reason: str = ""
    compile_failed: bool = False


class _Moment(msgspec.Struct):
    """The payload of a ``chromium_event``."""

    name: str
    ph: str
    ts: _UnixUs
    dur: _Us
    args: _Args


class _Artifact(msgspec.Struct):
    """The metadata of an artifact."""

    name: str
    op_name: str
    cache_hit: bool
    compile_failed: bool = False
    reason: str = ""


class Batch(NamedTuple):
    """Operations that were put off until something needed them."""

    name: str
    reason: str  # why they were put off no longer
    cached: bool
    failed: bool
    unix_ns: int = 0  # when it began; 0: not known
    dur: int = 0  # ns
    graph: str = ""  # as text; "": not known

    @property
    def same(self) -> tuple[str, str, bool]:
        """What all records of a batch say."""
        return self.name, self.reason, self.cached


class Batches:
    """Takes the records of one log in order."""

    def __init__(self) -> None:
        self._begun: dict[int, Batch] = {}  # by thread: a batch whose graph is still to come

    def take(self, metadata: Any, payload: Any, thread: int = 0) -> tuple[Batch, ...]:
        """The batches that a record completes. ``thread``: who wrote it, for each writes batch after batch."""
        if "chromium_event" in metadata:
            begun = _begun(payload)
            before = self.rest(thread) if begun is not None else ()
            if begun is not None and len(self._begun) < _OPEN:
                self._begun[thread] = begun
            return before
        artifact = metadata.get("artifact")
        if not isinstance(artifact, dict) or artifact.get("name") != GRAPH:
            return ()
        said = msgspec.convert(artifact, _Artifact)
        graph = payload if isinstance(payload, str) else ""
        batch = Batch(said.op_name, said.reason, said.cache_hit, said.compile_failed, graph=graph)
        begun = next(iter(self.rest(thread)), None)
        if begun is None:
            return (batch,)
        if begun.same != batch.same:
            return begun, batch
        return (batch._replace(unix_ns=begun.unix_ns, dur=begun.dur, failed=begun.failed or batch.failed),)

    def rest(self, thread: int) -> tuple[Batch, ...]:
        """The batch of a thread whose graph has not come, and is waited for no longer."""
        return (self._begun.pop(thread),) if thread in self._begun else ()

    def end(self) -> Iterator[Batch]:
        """Of all threads, once no record will come."""
        for thread in list(self._begun):
            yield from self.rest(thread)


def _begun(payload: Any) -> Batch | None:
    """The batch that a ``chromium_event`` tells of; None of anybody else's."""
    if not isinstance(payload, str) or MARK not in payload:
        return None
    said = msgspec.json.decode(payload, type=_Moment)
    if said.ph != "X":
        raise ValueError(f"a batch's event of phase {said.ph[:20]!r}, which is X")
    args = said.args
    begun, took = round(said.ts) * 1000, round(said.dur * 1e3)
    return Batch(said.name, args.reason, args.cache_hit, args.compile_failed, max(1, begun), took)
