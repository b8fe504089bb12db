"""Records of Dynamo's trace, completed by what its frames know, become events of a recording."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import time
from time import perf_counter_ns
from types import CodeType
from typing import Any, NamedTuple

from msgspec.structs import replace

from xlaprof import events
from xlaprof.events.dynamo import SETTING
from xlaprof.recording import recorder, stacks
from xlaprof.recording.logfile import rank_and_world
from xlaprof.recording.stacks import RawFrame, is_library
from xlaprof.sources.unrolled import Unrolled

from . import conversions, cuda_graphs, hints, process
from .asked import using
from .breaks import user_name
from .code import form_of
from .guards import Guard, subject
from .handed_over import in_the_functions_terms
from .inductor import cache_key, generated
from .phases import Phases, Tuned
from .record import Broke, Captured, Compiled, Keyed, Part, Recompiles, Specialized, compile_id, parse
from .unrolled import captured

#: functions remembered, by their number; and versions whose objects are
_KNOWN = 4_096
_FORGOTTEN = "reset", "what was compiled", "kept", "forgotten"  # kind, subject, old and new of a guard


class _Function(NamedTuple):
    """What a frame of Dynamo's is, in the user's terms."""

    name: str
    file: str
    line: int
    resumed: int  # line of the graph break it goes on behind, or 0


class Emitter:
    """Takes the records of one recording, in order; on whatever thread compiles."""

    def __init__(self, rec: recorder.Recorder) -> None:
        self._rec = rec
        self.compiles = self.breaks = self.recompiles = 0
        self.seconds = 0.0
        self.phases = Phases(self._tuned)
        self._functions: dict[str, _Function] = {}  # Dynamo's number of the frame -> what it is
        #: (file, co_name) -> name and line of each definition
        self._defined: dict[tuple[str, str], dict[int, str]] = {}
        self._objects: dict[int, set[int]] = {}  # id of a method's code -> ids of the objects it was compiled for
        self._shapes: dict[tuple[str, str], str] = {}  # (frame, tensor) -> the shape that came last
        self._last: dict[str, events.Guard] = {}  # compile id -> the guard to blame
        self._captured: dict[str, Captured] = {}  # compile id -> the graph
        self._constants: dict[tuple[str, str], tuple[RawFrame, ...]] = {}  # (compile id, size) -> what made it one
        self._broken = ""  # compile id of the break that came last
        #: compile id -> what the key of its graph in inductor's cache is made of; only with several ranks
        self._keys: dict[str, dict[str, str]] = {}
        self._settings: dict[str, str] = {}  # of these, as they were told last
        self._parts: dict[str, tuple[int, int]] = {}  # compile id -> its parts, and bytes of a bucket of DDP
        self._unrolled: dict[str, Unrolled] = {}  # compile id -> what a loop made of that graph
        self._converted: dict[str, conversions.Converted] = {}  # compile id -> what that graph converts
        self._resets = self._reset_at = 0  # how often Dynamo forgot all that it had compiled; Stack id of the last line
        self._graphs: dict[tuple[_Function, str], int] = {}  # function and graph -> resets before it was first compiled
        self._lives: dict[_Function, int] = {}  # function -> resets before it was first compiled
        self._missed: events.Recompile | None = None  # of the version that is being compiled, since a reset

    def take(self, metadata: dict[str, Any], payload: Any) -> None:
        """Emit the events of one record of the trace, if it has any."""
        if "dynamo_start" in metadata:
            self._begin(metadata)
            return
        found = parse(metadata, payload)
        if isinstance(found, Broke):
            self._broke(found)
        elif isinstance(found, Specialized):
            self._specialized(found)
        elif isinstance(found, Recompiles):
            self._recompiles(found)
        elif isinstance(found, Captured):
            _bound(self._captured)[found.compile] = found
            _bound(self._unrolled)[found.compile] = captured()
            _bound(self._converted)[found.compile] = conversions.captured()
        elif isinstance(found, Part):
            parts, bucket = (0, process.bucket()) if found.whole else self._parts.get(found.compile, (0, 0))
            _bound(self._parts)[found.compile] = parts + (not found.whole), bucket
        elif isinstance(found, Keyed):
            if rank_and_world()[1] > 1 and found.compile not in self._keys:  # of several graphs, the first
                _bound(self._keys)[found.compile] = cache_key.read(found.payload)
        elif isinstance(found, Compiled):
            self._compiled(found)

    def keep_code(self, metadata: dict[str, Any], payload: Any) -> None:
        """Keep the text of a program that a record holds, for a recording that keeps them."""
        form = form_of(metadata)
        if not form or not isinstance(payload, str):
            return
        compile = compile_id(metadata)
        function = self._functions.get(_frame(compile))
        key = f"{compile}#{self._resets + 1}" if self._resets else compile
        name, place = function.name if function else "", self._rec.stack(process.caller())
        self._rec.keep_code("torch.compile", key, form, lambda: payload, name, place)

    def generated(self, metadata: dict[str, Any], payload: Any) -> None:
        """Inductor's code of a graph is told."""
        found = generated.read(payload, generated.KNOWN) if isinstance(payload, str) else None
        if found is None:
            return
        compile = compile_id(metadata)
        self._rec.emit(
            events.GeneratedCode(
                perf_counter_ns(),
                compile,
                backward=found.backward,
                launches=found.launches,
                calls=found.calls,
                copies=found.copies,
                kernels=list(found.kernels),
                library=found.library,
                **self._where(self._function(_frame(compile))),
            )
        )

    def graph(self, number: int, compile: str, backward: bool, code: CodeType | None) -> events.TimedGraph:
        """A graph whose calls are timed: made by a compilation, or before the recording began for this code."""
        function = self._function(_frame(compile)) if code is None else self._name(f"graph {number}", code)
        where = self._where(function)
        return events.TimedGraph(perf_counter_ns(), number, compile, line=function.resumed, backward=backward, **where)

    def on_request(self) -> None:
        """Something is about to be given to ``torch.compile``."""
        rec = self._rec
        rec.emit(events.CompileAsked(perf_counter_ns(), rec.stack(stacks.user_frames()), rec.thread()))

    def on_reset(self) -> None:
        """Dynamo is about to forget all that it has compiled. Its numbers of frames begin again."""
        self._resets += 1
        self._reset_at = self._rec.stack(stacks.user_frames())
        self._broken = ""
        tables = self._functions, self._objects, self._shapes, self._last, self._captured, self._parts, self._unrolled
        for table in (*tables, self._constants, self._converted, self._keys):
            table.clear()

    # -- a compilation begins

    def _begin(self, metadata: dict[str, Any]) -> None:
        known = process.compiling()
        if known is None:
            return
        code, values, _ = known
        self._name(str(metadata.get("frame_id")), code)
        self._is_new_object(code, values)

    def _name(self, frame: str, code: Any) -> _Function:
        """Remember what Dynamo's frame of this number is."""
        name, resumed = user_name(code.co_name)
        file, line = os.path.abspath(code.co_filename), code.co_firstlineno
        if code.co_filename.startswith("<"):
            file = code.co_filename
        known = _bound(self._defined).setdefault((file, name), {})
        if not resumed:
            known[line] = code.co_qualname.rpartition("<locals>.")[2]
        begins = max((one for one in known if one <= line), default=0)
        function = _Function(known.get(begins, name), file, begins or line, resumed)
        _bound(self._functions)[frame] = function
        return function

    def _is_new_object(self, code: Any, values: dict[str, Any]) -> bool:
        """Whether a method is compiled for this object for the first time, though it was for others."""
        owner = values.get(code.co_varnames[0]) if code.co_argcount else None
        if owner is None or not (code.co_varnames[0] == "self" or process.is_module(owner)):
            return False
        known = _bound(self._objects).setdefault(id(code), set())
        this = id(owner)
        new = this not in known
        if new and len(known) < _KNOWN:
            known.add(this)
        return new and len(known) > 1

    # -- events

    def left_out(self, left: cuda_graphs.Left) -> None:
        """A graph, or a part of it, runs without the CUDA graph that it was compiled for."""
        compile, backward = cuda_graphs.running()
        rec = self._rec
        rec.emit(
            events.NoCudaGraph(
                perf_counter_ns(),
                compile,
                backward=backward,
                kind=left.kind,
                reason=left.reason,
                operator=left.operator,
                line=rec.stack(tuple(map(_absolute, left.frames))),
                ops=left.ops,
                all=left.all,
                **self._where(self._function(_frame(compile))),
            )
        )

    def recorded(self, one: cuda_graphs.Recorded, begun: int) -> None:
        """A CUDA graph was recorded, since ``begun`` (ns)."""
        rec = self._rec
        rec.emit(
            events.CudaGraph(
                begun,
                perf_counter_ns() - begun,
                one.compile,
                backward=one.backward,
                sizes=one.sizes,
                again=one.again,
                line=rec.stack(tuple(map(_absolute, one.frames))),
                **self._where(self._function(_frame(one.compile))),
            )
        )

    def _tuned(self, one: Tuned) -> None:
        """A kernel was tuned."""
        rec = self._rec
        rec.emit(
            events.Autotune(
                perf_counter_ns() - one.ns,
                one.ns,
                one.compile,
                backward=one.backward,
                kernel=one.kernel,
                apart=one.apart,
                **self._where(self._function(_frame(one.compile))),
            )
        )

    def _specialized(self, made: Specialized) -> None:
        """Keep the line that made a constant of a size that was a variable."""
        files = process.named_files(file for file, _, _ in made.frames)
        frames = (RawFrame(files.get(file, ""), line, user_name(func)[0]) for file, line, func in made.frames[::-1])
        mine = tuple(one for one in frames if one.file and not is_library(one.file, None))[:8]
        for source in made.sources if mine else ():
            _bound(self._constants).setdefault((made.compile, subject(source)), mine)

    def _broke(self, broke: Broke) -> None:
        found, rec = broke.found, self._rec
        if broke.raised and broke.compile == self._broken:
            return
        self._broken = broke.compile
        reason, hint = hints.explain(found)
        frames = found.user_frames()
        function = self._functions.get(_frame(broke.compile))
        self.breaks += 1
        rec.emit(
            events.GraphBreak(
                t=perf_counter_ns(),
                reason=reason,
                stack=rec.stack(tuple(map(_absolute, frames)) or process.caller()),
                tid=rec.thread(),
                explanation=found.explanation[:400],
                hint=hint,
                gb=found.gb,
                compile=broke.compile,
                func=rec.text(function.name if function else frames[-1].func if frames else ""),
                skipped=found.skipped,
                inside=found.inside,
                by_design=hints.by_design(found),
                at=rec.stack(found.frames[:1]) if found.in_library else 0,
            )
        )

    def _recompiles(self, found: Recompiles) -> None:
        rec, now = self._rec, process.missed()
        frame = _frame(found.compile)
        fresh = False
        if now is not None:
            function = self._name(frame, now.code)
            against, guards = process.differences(now, found.reasons)
            guards = [in_the_functions_terms(guard, now) for guard in guards]
            fresh = self._is_new_object(now.code, now.locals)
        else:
            function = self._function(frame)
            against, guards = (found.reasons[0].against, [found.reasons[0].guard]) if found.reasons else ("", [])
        failed = [self._guard(frame, function, guard, against) for guard in guards]
        if failed:
            _bound(self._last)[found.compile] = failed[0]
        event = events.Recompile(
            t=perf_counter_ns(),
            compile=found.compile,
            against=against,
            guards=failed,
            versions=len(found.reasons),
            fresh=fresh,
            dynamic=process.dynamic(),
            **self._where(function),
        )
        self.recompiles += 1
        if self._resets:  # the graph will tell whether it was compiled before that
            self._missed = event
        else:
            rec.emit(event)

    def _guard(self, frame: str, function: _Function, guard: Guard, against: str) -> events.Guard:
        """A guard as an event; where a version takes every size, the shape before is the one that came last.

        A guard that a library's function made is at the line of the program that runs this function.
        """
        old = guard.old
        if guard.kind in ("shape", "rank", "size bound"):
            tensor = subject(re.sub(r"\.(size|stride|storage_offset)\(\).*$", "", guard.source))
            before = self._shapes.get((frame, tensor), "")
            old = before if before and (not old or "?" in old or guard.kind == "size bound") else old
            old = "" if old == guard.text else old  # a bound is no shape
            if "[" in guard.new:
                _bound(self._shapes)[frame, tensor] = guard.new
        whole = (_whole(one, function) for one in guard.frames)
        frames = tuple(one for one in whole if not is_library(one.file, None))
        if not frames and is_library(function.file, None):
            frames = stacks.user_frames()
        elif not frames and guard.kind == "value" and (line := using(function.file, function.line, guard.subject)):
            frames = (RawFrame(function.file, line, function.name),)
        size = f"{guard.subject}.size()[{guard.dim}]" if guard.kind == "shape" else guard.subject
        return events.Guard(
            kind=guard.kind,
            subject=guard.subject,
            old=old,
            new=guard.new,
            text=guard.text[:300],
            dim=guard.dim,
            stack=self._rec.stack(frames[:8]),
            hint=guard.hint[:300],
            asked=self._rec.stack(tuple(map(_absolute, self._constants.get((against, size), ())))),
            handed=guard.handed,
        )

    def _compiled(self, done: Compiled) -> None:
        rec, event, frame = self._rec, done.event, _frame(done.event.compile)
        now, unix = perf_counter_ns(), time.time_ns()
        known = process.compiling()
        if known is not None and frame not in self._functions:
            self._name(frame, known[0])
        function = self._functions.get(frame) or _Function(done.func, done.file, done.line, done.resumed)
        backend = process.backend_name(known[2]) if known is not None and known[2] is not None else ""
        start = now - (unix - event.t) if event.t else now - event.dur
        where = self._where(function)
        self.compiles += 1
        self.seconds += event.dur / 1e9
        t = min(max(start, now - 10 * event.dur - 1_000_000_000), now)
        none = Captured(event.compile, "", False)
        graph = none if event.backward else self._captured.pop(event.compile, none)
        text = graph.text
        if again := self._again(replace(event, t=t), text, function, where):
            rec.emit(again)
        known_since = _bound(self._lives).setdefault(function, self._resets) if function.line else self._resets
        event = replace(event, forgotten=self._reset_at if known_since < self._resets else 0)
        phases = self.phases.of(event.compile, event.backward)
        made = Unrolled(0) if event.backward else self._unrolled.pop(event.compile, Unrolled(0))
        loop = rec.stack(tuple(map(_absolute, made.frames)))
        parts, bucket = (0, 0) if event.backward else self._parts.pop(event.compile, (0, 0))
        event = replace(event, t=t, phases=phases, turns=made.turns, loop=loop, loop_ops=made.within)
        event = replace(
            event,
            graph=text,
            static=graph.static,
            operations=graph.operations,
            parts=parts,
            bucket=bucket,
            key=self._key(event.compile),
            **self._conversions(event),
        )
        rec.emit(replace(event, backend=rec.text(backend), **where))
        if done.limit:
            guard = self._last.get(event.compile)
            rec.emit(
                events.DynamoLimit(now, event.compile, limit=done.limit, value=done.limit_value, guard=guard, **where)
            )

    def _key(self, compile: str) -> dict[str, str]:
        """What the graph's key is made of; of the settings, those that are not as they were told last."""
        key = self._keys.pop(compile, {})
        settings = {name: value for name, value in key.items() if name.startswith(SETTING)}
        told = {name: value for name, value in settings.items() if self._settings.get(name) != value}
        self._settings |= told
        return {name: value for name, value in key.items() if name not in settings} | told

    def _conversions(self, event: events.DynamoCompile) -> dict[str, Any]:
        """The fields of what the graph converts."""
        if event.backward:
            return {}
        found = self._converted.pop(event.compile, None) or conversions.Converted({}, 0)
        several = [
            events.Conversion(
                kind=one.kind,
                op=one.op[:200],
                new=one.new,
                old=one.old,
                stack=self._rec.stack(tuple(map(_absolute, one.frames[:8]))),
                count=count,
                mixed=one.mixed,
                beside=one.beside[:200],
                numpy=one.numpy,
            )
            for one, count in found.found.items()
        ]
        return {"conversions": several, "double": found.double}

    def _again(
        self, event: events.DynamoCompile, text: str, function: _Function, where: dict[str, int]
    ) -> events.Recompile | None:
        """The recompilation that this was: for a guard, or because a reset made Dynamo forget the same graph."""
        if event.backward:
            return None
        missed, self._missed = self._missed, None
        if missed is not None and missed.compile != event.compile:
            self._rec.emit(missed)  # what it was compiled for failed
            missed = None
        if not text or _bound(self._graphs).setdefault((function, text), self._resets) == self._resets:
            return missed
        self.recompiles += missed is None
        again = missed or events.Recompile(t=event.t, compile=event.compile, **where)  # type: ignore[arg-type]
        return replace(again, guards=[events.Guard(*_FORGOTTEN, stack=self._reset_at), *again.guards])

    def _function(self, frame: str) -> _Function:
        """What is known of the function with Dynamo's number ``frame``; nothing, where it was forgotten."""
        return self._functions.get(frame) or _Function("", "", 0, 0)

    def _where(self, function: _Function) -> dict[str, int]:
        """The fields that compilations have in common."""
        rec = self._rec
        return {
            "func": rec.text(function.name),
            "stack": rec.stack(process.caller()),
            "code": self._place(function, function.line),
            "resumed": self._place(function, function.resumed),
            "tid": rec.thread(),
        }

    def _place(self, function: _Function, line: int) -> int:
        return self._rec.stack((RawFrame(function.file, line, function.name),)) if line else 0


def _frame(compile: str) -> str:
    """Dynamo's number of the frame in a compile id: "1" of "1/0" and of "!0/1/0"."""
    return compile.removeprefix("!").split("/")[-2] if "/" in compile else compile


def _absolute(frame: RawFrame) -> RawFrame:
    if frame.file.startswith("<"):
        return frame
    return frame._replace(file=os.path.abspath(frame.file))


def _whole(frame: RawFrame, function: _Function) -> RawFrame:
    """A guard's line, whose file may have lost the beginning of its name, as far as it is that of PyTorch's own folder.

    It mostly is the function's own file; else it lies in PyTorch's folder or in one of those around it.
    """
    name = frame.file.replace("\\", "/")
    if os.path.isabs(frame.file) or frame.file.startswith("<"):
        return _absolute(frame)
    if function.file.replace("\\", "/").endswith(name):
        return frame._replace(file=function.file)
    places = (os.path.join(folder, frame.file) for folder in _around_torch())
    return _absolute(frame._replace(file=next(filter(os.path.exists, places), frame.file)))


@functools.cache
def _around_torch() -> tuple[str, ...]:
    """PyTorch's folder and those around it, innermost first."""
    found = importlib.util.find_spec("torch")
    folder = os.path.dirname(found.origin) if found is not None and found.origin else ""
    folders = []
    while folder and folder not in folders:
        folders.append(folder)
        folder = os.path.dirname(folder)
    return tuple(folders)


def _bound(table: Any) -> Any:
    """``table``, emptied when it has grown beyond bounds: what it forgets is described a little less well."""
    if len(table) >= _KNOWN:
        table.clear()
    return table
