"""The texts of a program, for a recording that keeps them: what was recorded, what jax made of it, what XLA did."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from xlaprof.runtime.tape import ir_text
from xlaprof.runtime.tape.graph import Graph
from xlaprof.runtime.tape.tape import Tape

from .program import Program

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder


def keep(rec: Recorder, tape: Tape, graph: Graph, program: Program, lowered: Any, stack: int) -> None:
    """``lowered``: what jax lowered it to; None where the program was found on disk, which has no text of that."""
    keep_one = partial(rec.keep_code, "xla", str(program.number), func=f"graph_{program.hash[:12]}", stack=stack)
    keep_one("ir", lambda: ir_text.text(tape, graph))
    if lowered is not None:
        keep_one("stablehlo", lambda: str(lowered.as_text(debug_info=True)))
    keep_one("hlo", lambda: str(program.compiled.as_text()))
