"""A story of functions under ``torch.compile``, for tests of what is said of them."""

from __future__ import annotations

from story import MS, Story

from xlaprof.analysis.model import Finding
from xlaprof.events import DynamoCompile, GraphBreak, Guard, Recompile


class Compiling:
    """A story of functions that are compiled; each has a line of its definition and of its call."""

    def __init__(self) -> None:
        self.story = Story()
        self.call = self.story.line(40, "loss = fast(x)")
        self.code = self.story.line(10, "def forward(x):", func="forward")
        self.func = self.story.text("forward")

    def compile(self, name: str, ms: float = 100, ops: int = 5, **fields: object) -> None:
        start = self.story.now
        self.story.spend(ms)
        event = {
            "stack": self.call,
            "code": self.code,
            "func": self.func,
            "backend": self.story.text("inductor"),
            **fields,
        }
        self.story.emit(DynamoCompile(t=start, dur=round(ms * MS), compile=name, ops=ops, **event))  # type: ignore[arg-type]

    def recompile(self, name: str, *guards: Guard, ms: float = 100, **fields: object) -> None:
        event = {"stack": self.call, "code": self.code, "func": self.func, **fields}
        for field in ("restarted", "ops", "compiled", "fail", "cached"):
            event.pop(field, None)
        self.story.emit(
            Recompile(t=self.story.now, compile=name, guards=list(guards), versions=1, **event)  # type: ignore[arg-type]
        )
        self.compile(
            name, ms, **{key: value for key, value in fields.items() if key not in ("fresh", "against", "dynamic")}
        )  # type: ignore[arg-type]

    def broke(self, name: str, line: int, reason: str = "print cannot be in a graph", **fields: object) -> None:
        stack = self.story.line(line, "print(x)", func="forward")
        self.story.emit(
            GraphBreak(t=self.story.now, reason=reason, stack=stack, compile=name, func=self.func, **fields)  # type: ignore[arg-type]
        )

    def findings(self, kind: str = "") -> list[Finding]:
        return self.story.findings(kind)


def shape(old: int, new: int, **fields: object) -> Guard:
    return Guard("shape", "x", f"f32[{old},3]", f"f32[{new},3]", f"size mismatch {old} {new}", 0, **fields)  # type: ignore[arg-type]
