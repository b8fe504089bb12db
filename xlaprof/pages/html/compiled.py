"""What was compiled: graphs with their first difference, functions of torch.compile and JAX, graph breaks as trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xlaprof.analysis.fold.torch_compile import BreakTally, Part
from xlaprof.analysis.model import CompiledFunctions, Report
from xlaprof.analysis.run import KeptRun
from xlaprof.events import ArgumentChange, Change
from xlaprof.text.quantities import duration, percent, plural, times

from .index import Index

_AGAIN = 200  # programs of JAX that were compiled again
_DEEPEST = 40  # breaks behind one another


def graphs(run: KeptRun, report: Report, index: Index) -> dict[str, Any]:
    """The graphs that took longest to compile, in order of compilation."""
    compiled = report.compilation
    changes = {record.program: record.change for record in run.compiles if record.change is not None}
    firsts = {record.program for record in run.compiles if record.is_first}
    moments = {record.program: record.t - (run.begin or 0) for record in run.compiles}
    rows = []
    for one in sorted(compiled.programs, key=lambda program: program.program):
        change = changes.get(one.program)
        rows.append(
            {
                "program": one.program,
                "ops": one.ops,
                "inputs": one.inputs,
                "outputs": one.outputs,
                "trigger": one.trigger,
                "compile_s": one.compile_s,
                "phases": [
                    ["lowering", one.lower_s, duration(one.lower_s)],
                    ["XLA", one.backend_s, duration(one.backend_s)],
                    ["other", max(0.0, one.compile_s - one.lower_s - one.backend_s), ""],
                ],
                "compile": duration(one.compile_s),
                "cached": one.cached,
                "runs": one.runs,
                "busy": duration(one.busy_s),
                "place": index.place(one.place),
                "at_ns": moments.get(one.program, 0),
                "first": one.program in firsts,
                "difference": _difference(change, run, index) if change is not None else None,
            }
        )
    share = compiled.total_s / report.run.wall_s if report.run.wall_s > 0 else 0.0
    note = f"{plural(compiled.count, 'program')} in {duration(compiled.total_s)}, {percent(share)} of the run"
    facts = [note]
    if compiled.cached:
        facts.append(f"{compiled.cached:,} of them came from the persistent cache")
    if compiled.saved_s > 0:
        facts.append(f"a second run with the persistent cache would save {duration(compiled.saved_s)}")
    return {"count": compiled.count, "facts": facts if compiled.count else [], "rows": rows}


def _difference(change: Change, run: KeptRun, index: Index) -> dict[str, Any]:
    """In what a graph first differs from the closest one before."""
    where: list[tuple[str, int]] = [
        ("recorded at", change.stack),
        ("where the earlier graph has", change.expected),
        ("made at", change.made),
        ("decided at", change.condition),
    ]
    places: dict[int, str] = {}  # one line may be several of these: it is shown once
    for said, stack in where:
        number = index.place(run.names.place(stack)) if stack else 0
        if number:
            places.setdefault(number, said)
    return {
        "against": change.against,
        "common": plural(change.position, "operation"),
        "text": _said(change),
        "old": change.old,
        "new": change.new,
        "moved": f"{change.added:,} came, {change.removed:,} went" if change.added or change.removed else "",
        "places": [[label, number] for number, label in places.items()],
    }


def _said(change: Change) -> str:
    """What differs, in words: "shape of input of aten::slice (tokens)"."""
    subject = change.subject.removeprefix("of ")
    text = subject if change.what == "operation" else f"{change.what} of {subject}" if subject else change.what
    return f"{text} ({change.name})" if change.name else text


def functions(done: CompiledFunctions, noun: str, report: Report, index: Index) -> dict[str, Any]:
    """Functions of torch.compile, or of JAX, and why their compiling was spent."""
    share = done.total_s / report.run.wall_s if report.run.wall_s > 0 else 0.0
    rows = [
        {
            "name": one.name or "?",
            "place": index.place(one.place),
            "backend": one.backend,
            "graphs": plural(one.graphs, noun),
            "again": f"{one.again:,} of them compiled again" if one.again else "",
            "breaks": f"broken at {plural(one.breaks, 'line')}" if one.breaks else "",
            "plain": [f"{what} runs as plain Python" for what in one.plain],
            "compile": duration(one.compile_s),
            "compile_s": one.compile_s,
        }
        for one in done.functions
    ]
    note = f"{plural(done.graphs, noun)} in {duration(done.total_s)}, {percent(share)} of the run"
    charges = [[duration(charge.seconds), charge.why, charge.seconds] for charge in done.charges]
    return {"count": done.count, "note": note if done.count else "", "rows": rows, "charges": charges}


def again(run: KeptRun, index: Index) -> list[dict[str, Any]]:
    """Programs of JAX made for a call that differs from earlier ones."""
    return [
        {
            "name": run.names.text(record.event.func),
            "place": index.place(run.names.place(record.event.stack)),
            "step": record.step,
            "at_ns": record.event.t - (run.begin or 0),
            "compile": duration(record.event.dur / 1e9),
            "changes": [_argument(change) for change in record.event.changes],
        }
        for record in run.jit.records[:_AGAIN]
    ]


def _argument(change: ArgumentChange) -> list[str]:
    return [change.kind, change.name, change.old, change.new]


def breaks(run: KeptRun, index: Index) -> list[dict[str, Any]]:
    """A tree for each function of torch.compile that is cut: its graphs, and the breaks between them."""
    compiled = run.torch_compile
    tallies = list(compiled.breaks.items())
    cut = {part[:2] for _, tally in tallies for part in tally.cut | tally.plain}
    trees = []
    for (code, name), function in compiled.functions.items():
        if (code, name) in cut:
            tree = _Tree(run, index, [(key[0], tally) for key, tally in tallies], (code, name))
            trees.append(
                {
                    "name": run.names.text(name),
                    "place": index.place(run.names.place(code)),
                    "compile": duration(function.dur / 1e9),
                    "graphs": plural(function.versions, "graph"),
                    "breaks": list(tree.behind(0, frozenset())),
                }
            )
    return trees


class _Tree:
    """The breaks of one function."""

    def __init__(
        self, run: KeptRun, index: Index, tallies: list[tuple[int, BreakTally]], function: tuple[int, int]
    ) -> None:
        self._run, self._index, self._tallies, self._function = run, index, tallies, function

    def behind(self, resumed: int, passed: frozenset[int]) -> Iterator[dict[str, Any]]:
        """The breaks of the code that goes on behind the break at stack ``resumed``; 0: of its beginning."""
        part: Part = (*self._function, resumed)
        for stack, tally in self._tallies:
            if part in tally.cut or part in tally.plain:
                event = tally.event
                deeper = stack not in passed and len(passed) < _DEEPEST
                yield {
                    "place": self._index.place(self._run.names.place(stack)),
                    "reason": event.reason,
                    "explanation": event.explanation,
                    "hint": event.hint,
                    "number": event.gb,
                    "by_design": event.by_design,
                    "times": times(tally.count),
                    "vain": duration(tally.restarted / 1e9) if tally.restarted else "",
                    "plain": part in tally.plain and part not in tally.cut,
                    "inside": sorted(filter(None, tally.inside)),
                    "breaks": list(self.behind(stack, passed | {stack})) if deeper else [],
                }
