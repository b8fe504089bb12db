"""What was compiled, or refused, although ``xlaprof.frozen`` had frozen the program."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import RECORDS
from xlaprof.events import Compile, DynamoCompile, FrozenCompile, JitCompile

_BY: dict[type, str] = {Compile: "xla", DynamoCompile: "torch.compile", JitCompile: "jax"}


class FrozenRecord(msgspec.Struct):
    """One of them."""

    event: FrozenCompile
    dur: int = 0  # ns that it took; 0: it was refused, or has not ended


class Frozen:
    """All of one recording. Ids are the recording's own."""

    def __init__(self) -> None:
        self.records: list[FrozenRecord] = []
        self._begun: dict[tuple[int, str], FrozenRecord] = {}  # by thread and who compiles

    def on_frozen(self, event: FrozenCompile) -> None:
        if len(self.records) < RECORDS:
            record = FrozenRecord(event)
            self.records.append(record)
            if not event.refused:
                self._begun[event.tid, event.by] = record

    def on_compiled(self, event: Compile | DynamoCompile | JitCompile) -> None:
        """Something was compiled: what was told of on its thread, if it had not ended by then."""
        record = self._begun.pop((event.tid, _BY[type(event)]), None) if self._begun else None
        if record is not None and event.t + event.dur >= record.event.t:
            record.dur = event.dur

    def merge(self, other: Frozen, ids: Ids) -> None:
        """Add another recording's, which stays as it is, its ids mapped to ours."""
        for record in other.records[: RECORDS - len(self.records)]:
            self.records.append(replace(record, event=ids.mapped(record.event, ("stack",), ("func",))))
