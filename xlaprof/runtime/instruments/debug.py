"""``PT_XLA_DEBUG``: PyTorch/XLA's output about compilations and executions, with the reason of each added.

``PT_XLA_DEBUG=1`` or ``PT_XLA_DEBUG_LEVEL`` (1: compilations, 2: executions too) switch it on, ``PT_XLA_DEBUG_FILE``
names a file to append to in place of standard error, ``PT_XLA_DEBUG_MAX_FRAME`` (8) bounds the frames shown. The blocks
are PyTorch/XLA 2.9's, line for line, for programs that parse them; our own lines begin with ``xlaprof:``.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import Counter
from types import FrameType
from typing import TYPE_CHECKING, Any

from xlaprof.recording import stacks
from xlaprof.runtime import metrics
from xlaprof.runtime.tape import mode
from xlaprof.runtime.trace import source
from xlaprof.source_text.lines import source_line

from . import hooks

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape

#: 0: print nothing, 1: compilations, 2: executions too; negative until the environment was read
level = -1

_READ = "most likely user code trying to access tensor value before torch_xla.sync"
_CAUSES = {
    "sync": "user torch_xla.sync",
    "mark_step": "user mark_step",
    "loader": "torch_xla.sync in parallel loader at step end",
    "step_trace": "torch_xla.sync when exiting a profiler StepTrace region",
    "compile": "torch_xla.compile",
    "clear_pending": "torch_xla.compile clear the pending graph prior calling the target function",
    "dynamo_inputs": "torch_xla.sync when dynamo processing input graphs",
}
_RULER = "=" * 80
_lock = threading.Lock()


def _read_environment() -> None:
    global level
    enabled = os.environ.get("PT_XLA_DEBUG", "").upper() in ("1", "TRUE", "ON", "YES", "Y")
    given = os.environ.get("PT_XLA_DEBUG_LEVEL", "")
    rank = os.environ.get("PJRT_LOCAL_PROCESS_RANK", os.environ.get("LOCAL_RANK", "0"))
    level = 0 if rank != "0" else int(given) if given.isdigit() else 100 if enabled else 0
    if level:
        atexit.register(_print_fallbacks)


def _silent(trigger: str) -> bool:
    if level < 0:
        _read_environment()
    return not level or trigger == "eager"


def _compiling(trigger: str, graph: Graph, differs: hooks.Differs) -> None:
    if _silent(trigger):
        return
    cause = "dynamo is compiling a FX graph to HLO" if trigger == "dynamo" else _CAUSES.get(trigger, _READ)
    why = differs() or ["nothing like this graph was recorded before"]
    _block("Compilation", cause, graph, trigger, [f"xlaprof: {line}" for line in why])


def _compiled(trigger: str, graph: Graph, program: Any) -> None:
    if _silent(trigger):
        return
    memory = program.memory_analysis()

    def size(what: str) -> str:
        return f"{getattr(memory, f'{what}_size_in_bytes') / 2**30:.6f}" if memory is not None else "Unknown "

    lines = [
        _RULER,
        f"Graph input size: {size('argument')} GB",
        f"Graph output size: {size('output')} GB",
        f"Aliased Input size: {size('alias')} GB",
        f"Intermediate tensor size: {size('temp')} GB",
        f"Compiled program size: {size('generated_code')} GB",
        "-" * 80,
        _RULER,
    ]
    prefix = "Post Compilation Analysis: "
    _print(f"\nComputation hash: {graph.hash}\n\n" + "".join(f"{prefix}{line}\n" for line in lines))


def _executing(tape: Tape, graph: Graph, trigger: str, results: list[Any]) -> None:
    if _silent(trigger) or level < 2:
        return
    cause = "dynamo is executing a compiled program" if trigger == "dynamo" else _CAUSES.get(trigger, _READ)
    ours = []
    if trigger == "read":
        place = at_line(stacks.user_frames(1))
        ours = [
            f"xlaprof: {len(graph.nodes)} of {tape.node.depth} pending operations run for a value that is read{place}"
        ]
    _block("Execution", cause, graph, trigger, ours)


def _block(kind: str, cause: str, graph: Graph, trigger: str, ours: list[str]) -> None:
    frames = frames_of(trigger)
    if not frames:  # a thread of autograd's
        return
    most = int(os.environ.get("PT_XLA_DEBUG_MAX_FRAME", "8"))
    inputs = len(graph.inputs) + len(graph.floats) + len(graph.ints) + bool(graph.seeds)
    lines = [
        _RULER,
        f"{kind} Cause",
        f"  {cause}",
        "Graph Info: ",
        *([f"  Graph Name: {mode.graph_name}"] if mode.graph_name else []),
        f"  Graph Hash: {graph.hash}",
        f"  Number of Graph Inputs: {inputs}",
        f"  Number of Graph Outputs: {len(graph.outs)}",
        "Python Frame Triggered Execution: ",
        *(f"  {frame}" for frame in frames[:most]),
        *(["  .........."] if len(frames) > most else []),
        "-" * 80,
        _RULER,
    ]
    text = "".join(f"{kind} Analysis: {line}\n" for line in lines)
    _print(f"\n{text}" + "".join(f"{line}\n" for line in ours))


def frames_of(trigger: str) -> list[str]:
    """``function (file:line)``, innermost first, from the function of ours that the program called.

    For reads PyTorch calls us, so there is none. Frames of ours further out, like the command that launched the
    program, are shown like all others.
    """
    found: list[str] = []
    entry: FrameType | None = None
    for frame in source.outward(sys._getframe(1)):
        file = frame.f_code.co_filename
        if not found and file.startswith(stacks.OWN):
            entry = frame
            continue
        if entry is not None and not found and trigger not in ("read", "dynamo"):
            found.append(_shown(entry))
        if not file.startswith("<frozen"):
            found.append(_shown(frame))
    return found


def _shown(frame: FrameType) -> str:
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"


def at_line(frames: tuple[RawFrame, ...]) -> str:
    """``, at train.py:12: loss.backward()``; empty without frames."""
    if not frames:
        return ""
    line = source_line(frames[0].file, frames[0].line)
    return f", at {frames[0].file}:{frames[0].line}" + (f": {line}" if line else "")


# -- the metrics, judged at each barrier --------------------------------------------------------------


def _barrier_ended(*_: object) -> None:
    """Report operations that are too frequent, too slow, or not lowered."""
    if _silent(""):
        return
    steps = metrics.counter_value("MarkStep") or 0
    lines = []
    for name, warm_up in (("CompileTime", 10), ("TransferFromDeviceTime", 0)):
        data = metrics.metric_data(name)
        if data is not None and steps > warm_up and data[0] / steps > 0.5:
            lines.append(f"pt-xla-profiler: {name} too frequent: {data[0]} counts during {steps} steps")
    for name, limit in (("CompileTime", 300e9), ("ExecuteTime", 30e9)):
        data = metrics.metric_data(name)
        longest = max((value for _, value in data[2]), default=0) if data is not None else 0
        if longest > limit:
            lines.append(
                f"pt-xla-profiler: {name} too slow: longest instance took {metrics._duration(longest)}. "
                "Please open a GitHub issue with the graph dump for our team to optimize."
            )
    fallbacks = [op for op in metrics.executed_fallback_ops() if op != "aten::_local_scalar_dense"]
    if fallbacks:
        lines.append(
            f"pt-xla-profiler: Op(s) not lowered: {', '.join(fallbacks)},  "
            "Please open a GitHub issue with the above op lowering requests."
        )
    if lines:
        _print("".join(f"{line}\n" for line in lines), sys.stdout)


# -- fallbacks, printed at exit --------------------------------------------------------------------------

_fallbacks: Counter[tuple[str, tuple[str, ...]]] = Counter()


def fell_back(op: str) -> None:
    """Count a fallback of ``op``, or a read by ``aten::_local_scalar_dense``."""
    if not _silent(""):
        _fallbacks[op, tuple(frames_of("read")[: int(os.environ.get("PT_XLA_DEBUG_MAX_FRAME", "8"))])] += 1


def _print_fallbacks() -> None:
    if not _fallbacks:
        return
    lines = [
        _RULER,
        "Unlowered Op usage summary (more of these ops, lower performance)",
        "Note: _local_scalar_dense typically indicates CPU context access",
        "-" * 80,
    ]
    for (op, frames), count in _fallbacks.most_common():
        lines += [f"FRAME (count={count}):", f'Unlowered Op: "{op.split("::")[-1]}"', "Python Frames:"]
        lines += [f"  {frame}" for frame in frames]
        lines += ["", ""]
    lines.append(_RULER)
    _print("\n".join(lines) + "\n", sys.stdout)


def _print(text: str, otherwise: Any = None) -> None:
    path = os.environ.get("PT_XLA_DEBUG_FILE")
    with _lock:
        if path:
            with open(path, "a") as file:
                file.write(text)
        else:
            stream = otherwise or sys.stderr
            stream.write(text)
            stream.flush()


hooks.compiling.append(_compiling)
hooks.compiled.append(_compiled)
hooks.executing.append(_executing)
hooks.barrier_ended.append(_barrier_ended)
