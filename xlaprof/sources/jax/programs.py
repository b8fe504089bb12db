"""What a program needs: asked of XLA once it ran for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xlaprof import events
from xlaprof.events.jit import Collective
from xlaprof.recording.stacks import RawFrame

from . import collectives, internals

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder


def tell(rec: Recorder, executable: Any, name: str, stack: int, program: int, t: int) -> None:
    """Ask XLA. It takes milliseconds for large programs: not in the program's own thread."""
    asked = internals.loaded(executable)
    if asked is None:
        return
    memory, cost = asked.get_compiled_memory_stats(), asked.cost_analysis()
    devices = len(asked.local_devices())
    found = collectives.exchanges(asked.hlo_modules()[0].to_string()) if devices > 1 else []
    rec.emit(
        events.JitProgram(
            t=t,
            func=rec.text(name),
            stack=stack,
            program=program,
            arguments=memory.argument_size_in_bytes,
            results=memory.output_size_in_bytes,
            temporary=memory.temp_size_in_bytes,
            donated=memory.alias_size_in_bytes,
            flops=_count(cost, "flops"),
            accessed=_count(cost, "bytes accessed"),
            devices=devices,
            collectives=[_collective(rec, one) for one in found],
        )
    )


def _count(cost: Any, name: str) -> int:
    """XLA says -1 of what it does not know."""
    return max(0, int(cost.get(name, 0.0))) if isinstance(cost, dict) else 0


def _collective(rec: Recorder, one: collectives.Exchange) -> Collective:
    frames: tuple[RawFrame, ...] = one.frames
    return Collective(
        kind=one.kind,
        shape=one.shape,
        bytes=one.bytes,
        count=one.times,
        stack=rec.stack(frames) if frames else 0,
        arguments=[f"{name}: {divided}" for name, divided in one.arguments],
    )
