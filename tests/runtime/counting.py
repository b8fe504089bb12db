"""What the runtime counts while a story is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import xlaprof.runtime as xr


class Counts(dict[str, int]):
    """Counter or metric -> how often; names never counted are 0."""

    def __missing__(self, name: str) -> int:
        return 0

    @property
    def compiles(self) -> int:
        return self["CompileTime"]

    @property
    def runs(self) -> int:
        return self["ExecuteTime"]

    @property
    def reads(self) -> int:
        return self["TransferFromDeviceTime"]


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts of what happens inside the block, filled in when it ends."""
    before, _ = xr.metrics.totals()
    counts = Counts()
    yield counts
    after, _ = xr.metrics.totals()
    counts.update({name: after[name] - before.get(name, 0) for name in after})
