"""The process of one layer: runs the program under it, and writes down what it sees as it goes (lines of JSON).

``python -c "from xlaprof.doctor.inside import main; main()" FOLDER LAYER (SCRIPT | -m MODULE) ARGS``. What the layer
without torch.compile has returned is in the folder ``plain`` beside that one. A line is
``{"call": s}``, ``{"graph": {...}}``, ``{"failure": {...}}`` or ``{"end": {...}}``: what a killed process has written
counts.
"""

from __future__ import annotations

import copy
import functools
import importlib
import linecache
import math
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
import torch._dynamo
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import RestartAnalysis, TorchDynamoException
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves, tree_map_only

from xlaprof import import_hook, running
from xlaprof.covered import covered
from xlaprof.doctor.graphs import allowed, difference, difference_of, is_random
from xlaprof.doctor.ladder import PLAIN
from xlaprof.doctor.layers import LAYERS, Failure, Kind, Layer, is_of_memory
from xlaprof.doctor.programs import write_program
from xlaprof.recording.stacks import is_library, looking, user_frames_of

RESULTS, CALLS = "seen.jsonl", "calls.pt"
COMPARED = 4  # calls whose outputs are kept
SAMPLED = 65_536  # values of an output that are kept
LOSS = 0.01  # relative; more between two losses is another result
CHECKED = 64  # graphs that are checked at most
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)')


class Watch:
    """What the process writes down."""

    def __init__(self, layer: Layer, folder: str) -> None:
        self.layer = layer
        self.folder = folder
        self.out = os.open(os.path.join(folder, RESULTS), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.began = time.perf_counter()
        self.kept: list[list[torch.Tensor]] = []
        self.losses: list[float] = []
        self.depth = 0
        self.graphs = 0
        self.apart = 0.0  # seconds of checks
        self.wrong = False  # a graph is
        self.random = False  # a graph draws random numbers
        self.peak = 0

    def write(self, kind: str, value: Any) -> None:
        os.write(self.out, msgspec.json.encode({kind: value}) + b"\n")

    def called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A call of something compiled. Calls that it makes itself belong to it."""
        if self.depth or torch.compiler.is_compiling():
            return function(*args, **kwargs)
        self.depth += 1
        begin, apart = time.perf_counter(), self.apart
        try:
            result = function(*args, **kwargs)
            _finish()
        finally:
            self.depth -= 1
        self.write("call", time.perf_counter() - begin - (self.apart - apart))
        if len(self.kept) < COMPARED:
            self.kept.append([_some(one) for one in tree_leaves(result) if _is_float(one)])
        return result

    def end(self, code: int) -> None:
        raised = getattr(sys, "last_value", None) if code else None
        torch.save((self.kept, self.losses), os.path.join(self.folder, CALLS))
        self._compare_with_plain()
        end = {
            "took": time.perf_counter() - self.began - self.apart,
            "code": code,
            "error": _short(raised) if raised is not None else f"exit code {code}",
            "place": _raised_at(raised) if raised is not None else "",
            "breaks": sum(counters["graph_break"].values()),
            "peak": max(self.peak, _high_water()),
        }
        self.write("end", end)

    def _compare_with_plain(self) -> None:
        """Does the program compute what it computes without torch.compile? What a graph has wrong is known already."""
        plain = os.path.join(os.path.dirname(self.folder), PLAIN, CALLS)
        if self.wrong or (self.random and self.layer.backend == "openxla") or not os.path.exists(plain):
            return
        kept, losses = torch.load(plain, weights_only=True)
        for number, (ours, theirs) in enumerate(zip(kept, self.kept, strict=False), 1):
            if found := difference_of(f"what compiled call {number} returns", ours, theirs):
                self.write("failure", Failure("numbers", str(found), error=_finite(found.error), whole=True))
                return
        for number, (one, other) in enumerate(zip(losses, self.losses, strict=False), 1):
            if abs(one - other) > LOSS * max(abs(one), 1e-6):
                text = f"loss {number} is {other:.6g}, {one:.6g} without torch.compile"
                self.write(
                    "failure",
                    Failure("numbers", text, error=_finite(abs(one - other) / max(abs(one), 1e-6)), whole=True),
                )
                return

    # -- graphs

    def backend(self, given: Any) -> Callable[..., Any]:
        """The layer's backend; under inductor the program's own, if that is inductor with options."""
        own = getattr(given, "compiler_name", given) == "inductor" and self.layer.backend == "inductor"
        inner = given if own and callable(given) else lookup_backend(self.layer.backend)
        if self.layer.backend == "openxla":
            inner = on_xla(inner)

        def compiling(graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Any:
            number, self.graphs = self.graphs, self.graphs + 1
            original = _copy(graph)
            begin = time.perf_counter()
            try:
                compiled = inner(graph, inputs, **options)
            except RestartAnalysis:
                raise  # Dynamo captures the function once more, and knows better then
            except Exception as error:
                self._fail("crash", _short(error), number, original, inputs)
                raise
            finally:
                took = time.perf_counter() - begin
            return self._first_call(number, original, compiled, took)

        return compiling

    def _first_call(self, number: int, graph: Any, compiled: Any, took: float) -> Any:
        """``compiled``, whose first call is checked."""
        waits = [True]
        place, code = _place(graph)
        about = {"number": number, "place": place, "code": code, "compiling": took, "operations": _operations(graph)}

        @functools.wraps(compiled)
        def call(*args: Any) -> Any:
            if not waits:
                return compiled(*args)
            waits.clear()
            begin = time.perf_counter()
            self.peak = max(self.peak, _high_water())
            remark, found = "", None
            if self.layer.backend == "eager":
                remark = "it is the same code"
            elif graph is None or number >= CHECKED:
                remark = "it cannot be copied" if graph is None else f"{CHECKED} graphs were checked"
            else:
                try:
                    found = difference(graph, compiled, args)
                except Exception as error:
                    remark = _short(error)
            self.write("graph", {**about, "remark": remark})
            self.wrong |= found is not None
            self.random |= graph is not None and is_random(graph)
            if found is not None:
                self._fail("numbers", str(found), number, graph, args, _finite(found.error))
            _reset_high_water()
            self.apart += time.perf_counter() - begin
            try:
                return compiled(*args)
            except Exception as error:
                if number < CHECKED:
                    self._fail("crash", _short(error), number, graph, args)
                raise

        return call

    def _fail(
        self,
        kind: Kind,
        text: str,
        number: int,
        graph: Any,
        inputs: Sequence[Any],
        error: float | None = None,
    ) -> None:
        place, code = _place(graph)
        folder = self._keep(kind, number, graph, inputs, place)
        kind = "memory" if is_of_memory(text) else kind
        self.write("failure", Failure(kind, text, place, code, folder, False, error))

    def _keep(self, kind: str, number: int, graph: Any, inputs: Sequence[Any], place: str) -> str:
        """Write the graph as a program that runs alone: its folder, "" for none."""
        if graph is None or self.layer.backend == "openxla":
            return ""
        folder = os.path.join(self.folder, f"graph-{number}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = f"A graph that {'gives other numbers' if kind == 'numbers' else 'fails'} under {self.layer.name}."
        try:
            write_program(
                os.path.join(folder, "whole.py"),
                graph,
                inputs,
                self.layer.backend,
                about,
                place,
                allowed(inputs),
            )
        except Exception as error:  # graphs that PyTorch cannot write down
            self.write("note", f"graph {number} cannot be written down: {_short(error)}")
            return ""
        return folder


def main() -> None:
    """Run the program under the layer, and end as it ends."""
    folder, name, *rest = sys.argv[1:]
    layer = next(one for one in LAYERS if one.name == name)
    program = running.module(rest[1:]) if rest[0] == "-m" else running.script(rest[0], rest[1:])
    watch = Watch(layer, folder)
    _seed()
    with covered(program.path0):
        if layer.backend == "openxla":
            importlib.import_module("xlaprof.runtime")
        import_hook.serve(to=program.code)
        _put_in(watch)
    sys.argv = program.argv
    code = 1
    try:
        code = running.execute(program, running.Outcome())
    finally:
        watch.end(code)
    sys.exit(code)


def _put_in(watch: Watch) -> None:
    """Have all that ``torch.compile`` compiles compiled by the layer, and watched."""
    theirs = torch._dynamo.optimize

    def optimize(*args: Any, backend: Any = "inductor", **kwargs: Any) -> Callable[[Any], Any]:
        if watch.layer.backend == "openxla":
            kwargs["dynamic"] = False  # XLA compiles each size, and so it goes for tensors that are moved to it
        context = theirs(*args, backend=watch.backend(backend) if watch.layer.backend else "eager", **kwargs)

        def compiled(function: Any) -> Any:
            made = context(function)
            if isinstance(made, torch.nn.Module):
                made.forward = functools.partial(watch.called, made.forward)
                return made
            return functools.wraps(made)(functools.partial(watch.called, made))

        return compiled

    torch._dynamo.optimize = optimize  # type: ignore[assignment]
    torch._inductor.config.fallback_random = True  # random numbers as PyTorch draws them
    if not watch.layer.backend:
        torch.compiler.set_stance("force_eager")
    backward = torch.Tensor.backward

    @functools.wraps(backward)
    def noted(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if len(watch.losses) < COMPARED and self.numel() == 1:
            watch.losses.append(float(self.detach()))
        backward(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    torch.Tensor.backward = noted  # type: ignore[method-assign]


def on_xla(inner: Callable[..., Any]) -> Callable[..., Any]:
    """``inner`` for a graph over tensors of another device: they go to ``xla`` and back, in each call."""

    def compiling(graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Any:
        devices = {one.device for one in inputs if isinstance(one, torch.Tensor)}
        if all(device.type == "xla" for device in devices):
            return inner(graph, inputs, **options)
        (home,) = devices or {torch.device("cpu")}
        for node in graph.graph.nodes:
            if isinstance(node.kwargs.get("device"), torch.device | str):
                node.kwargs = {**node.kwargs, "device": torch.device("xla")}
            node.args = torch.fx.node.map_aggregate(
                node.args, lambda one: torch.device("xla") if isinstance(one, torch.device) else one
            )
        graph.recompile()
        with torch._guards.tracing(None):  # Dynamo knows no source of what it has not seen
            compiled = inner(graph.to("xla"), [_to_xla(one) for one in inputs], **options)

        def call(*args: Any) -> Any:
            there = [_to_xla(one) for one in args]
            before = [one._version if isinstance(one, torch.Tensor) else 0 for one in there]
            outputs = compiled(*there)
            for one, copied, version in zip(args, there, before, strict=True):
                if isinstance(one, torch.Tensor) and copied._version != version:
                    with torch.no_grad():
                        one.copy_(copied)
            return tree_map_only(torch.Tensor, lambda one: one.to(home), outputs)

        return call

    return compiling


def _to_xla(one: Any) -> Any:
    return one.to("xla") if isinstance(one, torch.Tensor) else one


def _seed() -> None:
    random.seed(0)
    torch.manual_seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)


def _finish() -> None:
    """Have the device finish, so that the time of a call is its own."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _is_float(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel() > 0


def _some(one: torch.Tensor) -> torch.Tensor:
    flat = one.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)][:SAMPLED].to("cpu", copy=True)


def _copy(graph: torch.fx.GraphModule) -> torch.fx.GraphModule | None:
    try:
        return copy.deepcopy(graph)
    except Exception:  # what the graph holds may forbid it: then it is not checked, which is said
        return None


def _operations(graph: torch.fx.GraphModule | None) -> int:
    return sum(node.op.startswith("call") for node in graph.graph.nodes) if graph is not None else 0


def _place(graph: torch.fx.GraphModule | None) -> tuple[str, str]:
    """The user's innermost line that the graph's first operation comes from, else that of the call; and its code."""
    for node in graph.graph.nodes if graph is not None else ():
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        own = [frame for frame in frames if not is_library(frame[0], None)]
        if own:
            file, line, code = own[-1]
            return f"{os.path.relpath(file)}:{line}", code.strip()
    return _caller()


def _caller() -> tuple[str, str]:
    """The innermost line of the program's own that is on the stack, and its code."""
    with looking:
        found = user_frames_of(sys._getframe(1), 1)
    if not found:
        return "", ""
    file, line, _ = found[0]
    return f"{os.path.relpath(file)}:{line}", linecache.getline(file, line).strip()


def _raised_at(error: BaseException) -> str:
    """The innermost line of the program's own on the way to ``error``."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_library(frame.filename, None)]
    return f"{os.path.relpath(own[-1].filename)}:{own[-1].lineno}" if own else ""


def _short(error: BaseException) -> str:
    """The first line of what an error says, of the one at its root."""
    while isinstance(error, TorchDynamoException) and isinstance(
        inner := getattr(error, "inner_exception", None), Exception
    ):
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]  # Dynamo's
    text = " ".join([line.rstrip(".") + "." for line in lines[:1]] + why[:1]).rstrip(".")
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


def _high_water() -> int:
    """Most memory that the process has had, bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def _reset_high_water() -> None:
    """What the checks needed is not the program's."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return  # then they count
