"""Where the time of a compilation went: Dynamo's trace has the begin and end of each part, one within another.

Each part's own time, without the parts within it, counts for its phase; a part of no phase of its own counts for the
one around it. So the phases of a compilation sum to its time, and what none of them has is ``unaccounted``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

UNACCOUNTED = "unaccounted"
_ROOTS = frozenset({"entire_frame_compile", "entire_backward_compile"})
_DYNAMO, _AOT, _INDUCTOR, _KERNELS = "Dynamo", "AOTAutograd", "Inductor", "kernels"
_TUNING, _GUARDS, _CACHE, _GC, _BACKEND = "autotuning", "guards", "cache", "garbage collection", "backend"
#: how the name of a part begins -> its phase; the first that fits
_BEGINNINGS = {
    _DYNAMO: "compile_attempt bytecode_tracing insert_deferred",
    _GUARDS: "build_guards",
    _GC: "gc",
    _BACKEND: "backend_compile",
    _AOT: "create_aot_dispatcher aot_ _recursive_joint min_cut",
    _KERNELS: "compile_file async_compile TritonCompile triton precompile",
    _TUNING: "autotun CachingAutotuner benchmark",
    _CACHE: "fx_graph_cache inductor_codecache AOTAutogradCache autograd_cache remote_ PyCodeCache FxGraphCache "
    "CacheBase",
    _INDUCTOR: "compile_fx inductor_compile fx_codegen",
}
_PHASES = tuple((begin, phase) for phase, begins in _BEGINNINGS.items() for begin in begins.split())
#: how the name of a part ends, which begins with an operation: "mm_template_autotuning"
_ENDINGS = {"_template_precompiling": _KERNELS, "_template_autotuning": _TUNING}
#: parts that tune a kernel when it first runs, after the compilation
_APART = "CachingAutotuner."
_DEEPEST, _KEPT = 200, 64
#: phases that may last long enough to be looked at
LASTING = frozenset({_DYNAMO, _AOT, _INDUCTOR, _KERNELS, _TUNING})


class Tuned(NamedTuple):
    """A kernel, or an operation, was tuned on this thread, up to now."""

    kernel: str
    ns: int
    compile: str
    backward: bool
    apart: bool  # when it first ran, not within a compilation


class _Part:
    __slots__ = ("begun", "name", "phase", "within")

    def __init__(self, name: str, phase: str, begun: float) -> None:
        self.name, self.phase, self.begun = name, phase, begun
        self.within = 0.0  # of the parts in it


class _Local(threading.local):
    def __init__(self) -> None:
        self.open: list[_Part] = []
        self.spent: dict[str, float] = {}  # us by phase, of the compilation that goes on
        self.apart: tuple[str, float] = "", 0.0  # what is tuned outside of a compilation, and since when
        self.done: dict[tuple[str, bool], dict[str, int]] = {}  # by compile id and whether backward: ns by phase


class Phases:
    """Fed with the trace's events of parts, on the thread that compiles."""

    def __init__(self, tuned: Callable[[Tuned], None] = lambda tuned: None) -> None:
        """``tuned`` is called with each kernel that was tuned."""
        self._local = _Local()
        self._tuned = tuned

    def take(self, payload: Any) -> str:
        """An event of the trace, as text or parsed. Returns the phase of a part that begins, else ""."""
        event = json.loads(payload) if isinstance(payload, str) else payload
        name, moment, kind = event["name"], float(event["ts"]), event["ph"]
        local = self._local
        if kind == "B":
            if name in _ROOTS:
                local.open.clear()
                local.spent.clear()
            elif not local.open or len(local.open) >= _DEEPEST:
                if name.startswith(_APART) and not local.apart[0]:
                    local.apart = name, moment
                return ""
            part = _Part(name, _phase(name, local.open), moment)
            local.open.append(part)
            return part.phase
        if kind == "E" and any(part.name == name for part in local.open):
            while (part := local.open.pop()).name != name:  # an exception left these
                if local.open:
                    local.open[-1].within += part.within
            took = max(0.0, moment - part.begun)
            if part.phase == _TUNING and not any(one.phase == _TUNING for one in local.open):
                self._tell(event, took, False)
            local.spent[part.phase] = local.spent.get(part.phase, 0.0) + max(0.0, took - part.within)
            if local.open:
                local.open[-1].within += took
            elif name in _ROOTS:
                compile = str((event.get("args") or {}).get("compile_id", ""))
                if len(local.done) >= _KEPT:
                    local.done.clear()
                spent = {phase: int(us * 1000) for phase, us in local.spent.items() if us >= 1}
                local.done[compile, name == "entire_backward_compile"] = spent

        elif kind == "E" and name == local.apart[0]:
            begun, local.apart = local.apart[1], ("", 0.0)
            self._tell(event, max(0.0, moment - begun), True)
        return ""

    def _tell(self, event: Any, took: float, apart: bool) -> None:
        args = event.get("args") or {}
        kernel = str(args.get("kernel_name") or "")
        if not kernel:
            operation = next((event["name"].removesuffix(end) for end in _ENDINGS if event["name"].endswith(end)), "")
            kernel = f"{operation} {args.get('autotune_shape', '')}".strip()
        if kernel:
            backward = args.get("is_backward") is True
            self._tuned(Tuned(kernel[:200], int(took * 1000), str(args.get("compile_id", "")), backward, apart))

    def of(self, compile: str, backward: bool) -> dict[str, int]:
        """ns by phase of a compilation that has ended on this thread, once; empty where that is not known."""
        return self._local.done.pop((compile, backward), {})


def _phase(name: str, around: list[_Part]) -> str:
    if not around:
        return UNACCOUNTED
    for begin, phase in _PHASES:
        if name.startswith(begin):
            return phase
    for end, phase in _ENDINGS.items():
        if name.endswith(end):
            return phase
    return around[-1].phase
