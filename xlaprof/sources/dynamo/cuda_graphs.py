"""CUDA graphs of ``torch.compile`` (``mode="reduce-overhead"``, ``"max-autotune"``): recorded for what, left out why.

Nothing of PyTorch's is replaced, and a step that replays a CUDA graph runs no code of ours. Inductor calls Dynamo's
callbacks around each recording, writes to a logger of its own why a graph runs without, and holds in its scheduler,
while it tells the code of a graph, which of the operations it leaves out of the CUDA graphs. What of all that is
private is here (PyTorch 2.11 to 2.13); where another PyTorch has it otherwise, less is known, and nothing fails.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from xlaprof.recording.stacks import RawFrame, is_library

from .breaks import frames_in
from .process import frame_of, show

LOGGER = "torch._inductor.cudagraph_utils.__cudagraphs"
#: the trigger of Dynamo's callbacks around a recording
RECORDING = "CUDAGRAPH_RECORDING"
_MODULE, _TREES = "torch._inductor.cudagraph_utils", "cudagraph_trees.py"
#: what PyTorch's sentences say -> the sort of reason; the first that fits
_REASONS = {
    "mutated inputs": "mutation",
    "input storage mutation": "mutation",
    "re-recording limit": "limit",
    "symbolic shapes": "dynamic",
    "dynamic shape ops": "dynamic",
    "unbacked": "size",
    "incompatible op": "operator",
    "DeviceCopy": "copy",
    "cpu device (device_put": "copy",
    "cpu device": "cpu",
    "cpu ops": "cpu",
    "multiple devices": "devices",
    "Conditional": "operator",
    "custom": "operator",
    "annotation": "asked",
    "bisector": "asked",
}
#: operators whose results have sizes that values decide: no CUDA graph can hold them
_OF_VALUES = re.compile(r"aten\.(nonzero|masked_select|unique\w*|_unique\w*|repeat_interleave|bincount|_local_scalar)")
_OPERATOR = re.compile(r"(?:incompatible|custom partition) op:? ?([\w.:]+)")
_SHOWN, _NODES = 3, 10_000


class Left(NamedTuple):
    """What runs without a CUDA graph though it was compiled for them."""

    kind: str  # "mutation" | "copy" | "cpu" | "size" | "dynamic" | "operator" | "limit" | "devices" | "asked" | "other"
    reason: str  # PyTorch's words
    operator: str  # "aten.nonzero", where that is the reason
    frames: tuple[RawFrame, ...]  # the user's lines of it, innermost first; empty: not known
    ops: int = 0  # operations that run without, of
    all: int = 0  # so many of the graph; 0: all of it


class Recorded(NamedTuple):
    """A CUDA graph that is being recorded."""

    compile: str
    backward: bool
    sizes: str  # "f32[10,64]": of the inputs that vary; "" where none does
    again: str  # why none of those recorded before fits: PyTorch's words; "": there is none for these sizes
    frames: tuple[RawFrame, ...]  # the user's lines of the input that is the reason


def parsed(text: str) -> Left | None:
    """Why a graph runs without, as PyTorch says it; None of what it says else. A pure function."""
    if "cudagraph" not in text or not re.match(r"(skipping|disabling) cudagraph", text):
        return None
    said, _, stack = text.partition("Found from")
    stack = re.sub(r"^[ :]*File ", "  File ", stack, flags=re.MULTILINE)
    said = re.sub(r"^((skipping|disabling) cudagraphs? due to )+", "", said).strip(" .:\n")
    return _left(said.partition("\n")[0], frames_in(stack))


def _left(said: str, frames: tuple[RawFrame, ...], ops: int = 0, all: int = 0) -> Left:
    kind = next((kind for sign, kind in _REASONS.items() if sign in said), "other")
    found = _OPERATOR.search(said)
    operator = re.sub(r"\.(default|Tensor|out)$", "", found[1]) if found else ""
    if _OF_VALUES.match(operator):
        kind = "size"
    users = tuple(frame for frame in frames if not is_library(frame.file, None))
    return Left(kind, said[:300], operator, users[:8], ops, all)


# -- while a graph's code is told


def asked(payload: Any) -> bool:
    """Whether the graph whose code this is was compiled for CUDA graphs."""
    config: Any = sys.modules.get("torch._inductor.config")
    meant = bool(getattr(getattr(config, "triton", None), "cudagraphs", False))
    return meant and isinstance(payload, str) and "torch.cuda._DeviceGuard(" in payload


def _graph() -> Any:
    """The graph that inductor compiles here; without attributes where there is none."""
    return getattr(getattr(sys.modules.get("torch._inductor.virtualized"), "V", None), "graph", None)


def left_out() -> Iterator[Left]:
    """What the scheduler leaves out of the CUDA graphs of the graph whose code is told now: by place and reason.

    A graph that comes from inductor's cache has no scheduler: of it nothing is known.
    """
    scheduler = getattr(_graph(), "scheduler", None)
    config: Any = sys.modules.get("torch._inductor.config")
    if scheduler is None or not getattr(config, "graph_partition", False):
        return
    why: Callable[[Any], str | None] | None = getattr(scheduler, "should_partition", None)
    nodes = list(scheduler.nodes)[:_NODES]
    if why is None:
        return
    found: dict[tuple[str, tuple[RawFrame, ...]], list[Any]] = {}
    for node in nodes:
        reason = why(node)
        if reason and type(node.node).__name__ != "AssertScalar":  # of a size that another operation makes
            found.setdefault((_named(node, reason), _frames(node)), []).append(node)
    for (reason, frames), several in found.items():
        yield _left(reason, frames, len(several), len(nodes))


def _named(node: Any, reason: str) -> str:
    """The reason, with the operator where that says more."""
    if type(node.node).__name__ == "DeviceCopy":
        return "DeviceCopy ops"
    origin = _origin(node)
    target = str(getattr(origin, "target", ""))
    return f"{reason}: incompatible op {target}" if "unbacked" in reason and target else reason


def _origin(node: Any) -> Any:
    get = getattr(node.node, "get_origin_node", None)
    return get() if callable(get) else None


def _frames(node: Any) -> tuple[RawFrame, ...]:
    """Where the operation stands in the program, of it or of the one that it was made of."""
    for one in (_origin(node), *(getattr(node.node, "origins", None) or ())):
        trace = getattr(one, "meta", {}).get("stack_trace")
        if isinstance(trace, str) and (frames := frames_in(trace)):
            return frames
    return ()


# -- while the program runs


def _runs(frame: FrameType | None) -> tuple[Any, Any] | None:
    """The manager of CUDA graphs, and the number of the function that it runs at this frame."""
    held = frame.f_locals if frame is not None else {}
    manager, number = held.get("self"), held.get("function_id")
    return None if manager is None or number is None else (manager, number)


def running() -> tuple[str, bool]:
    """The compile id of the graph that runs, or is compiled, here; and whether it is a backward one."""
    found = _runs(frame_of("_run", _TREES) or frame_of("record_function", _TREES))
    if found is not None:
        manager, number = found
        mode = getattr(manager, "id_to_mode", {}).get(number)
        return str(getattr(manager, "id_to_compile_id", {}).get(number, "")), getattr(mode, "name", "") == "BACKWARD"
    context: Any = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    current = getattr(context, "current_compile_id", None)
    after = frame_of("cudagraph_post_compile", "output_code.py") or frame_of("post_compile", "output_code.py")
    held = after.f_locals.get("is_backward") if after is not None else getattr(_graph(), "is_backward", False)
    return str((current() if callable(current) else None) or ""), held is True


def recording() -> Recorded | None:
    """The CUDA graph whose recording begins here; None where this PyTorch does it otherwise."""
    frame = frame_of("record_function", _TREES)
    found = _runs(frame)
    if frame is None or found is None:
        return None
    manager, number = found
    inputs = frame.f_locals.get("new_inputs") or ()
    function = getattr(manager, "ids_to_funcs", {}).get(number)
    compile, backward = running()
    again, frames = _again(frame_of("_run", _TREES))
    return Recorded(compile, backward, _sizes(inputs, function), again, frames)


def _sizes(inputs: Any, function: Any) -> str:
    """Of the inputs, but those that stay where they are, as parameters do: the shapes, where a size is an input."""
    if not any(type(one) is int for one in inputs):
        return ""
    kept = set(getattr(function, "static_input_idxs", ()))
    shapes = [show(one) for at, one in enumerate(inputs) if at not in kept and type(one) is not int]
    return ", ".join(shapes[:_SHOWN]) + ", ..." * (len(shapes) > _SHOWN)


def _again(frame: FrameType | None) -> tuple[str, tuple[RawFrame, ...]]:
    """Why what was recorded before does not fit, and the lines of the input that it is about."""
    held = frame.f_locals if frame is not None else {}
    status, why = held.get("status"), held.get("unexpected_rerecord_reason")
    if status is None:
        return "", ()
    text = why() if callable(why) else why
    if not isinstance(text, str):
        return str(status), ()
    stack = text.partition("input stack trace:")[2]
    return str(status), tuple(one for one in frames_in(f"\n  {stack.strip()}") if not is_library(one.file, None))[:8]


class Told(logging.Handler):
    """On inductor's logger: calls ``skipped`` with each reason why a graph runs without. It writes nothing."""

    def __init__(self, skipped: Callable[[Left], None]) -> None:
        super().__init__(logging.WARNING)
        self._skipped = skipped

    def createLock(self) -> None:
        """None is needed: events are appended."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """As any handler, without the lock."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        left = parsed(record.getMessage())
        if left is not None:
            self._skipped(left)

    def attach(self) -> None:
        """Where inductor is in use; also again, after ``set_logs`` removed it."""
        if _MODULE in sys.modules:
            logger = logging.getLogger(LOGGER)
            if self not in logger.handlers:
                logger.addHandler(self)

    def detach(self) -> None:
        logging.getLogger(LOGGER).removeHandler(self)
