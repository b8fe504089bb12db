"""Ranks of one training on a fake clock: they meet in a collective, so all of them take as long as the slowest."""

from __future__ import annotations

from pathlib import Path

from story import Story

from xlaprof.events import Change

CYCLE = 40  # ms of a step, on every rank


class RankStory(Story):
    """The recording of one rank, step by step. The time that is left of a step it waits for the others, in a read."""

    def __init__(self, rank: int, world: int = 3, path: Path | None = None, **fields: object) -> None:
        super().__init__("/home/ada/train.py", rank=rank, path=path, world=world, **fields)  # type: ignore[arg-type]
        self.rank = rank
        self.barrier_line = self.line(31, "xr.sync()")
        self.read_line = self.line(33, "print(loss.item())")
        self.data_line = self.line(12, "for batch in loader:")
        self.input_line = self.line(24, "h = self.embedding(tokens)")

    def train(self, steps: int, data: float = 1, shape: str = "", cycle: float = CYCLE) -> RankStory:
        """``data``: ms that each batch takes to come, before the step. ``shape``: of an input of another graph."""
        for _ in range(steps):
            begin = self.now
            self.data(data, self.data_line)
            with self.step():
                self.trace(2)
                change = Change("shape", "i64[8,128]", shape, "input 0 of aten::embedding", self.input_line,
                                self.input_line, against=1) if shape else None  # fmt: skip
                self.barrier(self.barrier_line, cycle - data - 3, f"step{shape}", compile=5, change=change)
                self.read(self.read_line)
                self.now = max(self.now, begin + round(cycle * 1e6) - 1_000)
        return self

    def finish_and_close(self, error: str = "") -> None:
        """The program ends in order."""
        self.finish(error)
        self.leave()

    def leave(self) -> None:
        """The program is gone without a word."""
        if self.log is not None:
            self.log.close()
            self.log = None
