"""What was compiled, written out: graphs with their first difference, functions, graph breaks as trees."""

from __future__ import annotations

from typing import Any

from xlaprof.analysis.model import CompiledFunctions, Report, TorchTpuStat
from xlaprof.analysis.torch_tpu.words import cut, put_off, reason
from xlaprof.analysis.views.details import Again, Break, Details, Function, Graph
from xlaprof.pages.words import autotuned, spent
from xlaprof.text.quantities import duration, percent, plural, size_text, times

from .index import Index

_AGAIN = 200  # calls that needed another program


def graphs(of: Details, report: Report, index: Index) -> dict[str, Any]:
    """The graphs that took longest to compile, in order of compilation."""
    compiled = report.compilation
    longest = {one.program for one in compiled.programs}
    share = compiled.total_s / report.run.wall_s if report.run.wall_s > 0 else 0.0
    facts = [f"{plural(compiled.count, 'program')} in {duration(compiled.total_s)}, {percent(share)} of the run"]
    if compiled.cached:
        facts.append(f"{compiled.cached:,} of them came from the persistent cache")
    if compiled.saved_s > 0:
        facts.append(f"a second run with the persistent cache would save {duration(compiled.saved_s)}")
    return {
        "count": compiled.count,
        "facts": facts if compiled.count else [],
        "rows": [_graph(one, index) for one in of.graphs if one.program in longest],
    }


def _graph(one: Graph, index: Index) -> dict[str, Any]:
    other = one.compile_s - one.lower_s - one.backend_s
    phases = [("lowering", one.lower_s), ("XLA", one.backend_s), ("other", max(0.0, other))]
    return {
        "program": one.program,
        "ops": one.ops,
        "inputs": one.inputs,
        "outputs": one.outputs,
        "trigger": one.trigger,
        "compile_s": one.compile_s,
        "phases": [[name, seconds, duration(seconds)] for name, seconds in phases],
        "compile": duration(one.compile_s),
        "cached": one.cached,
        "runs": one.runs,
        "busy": duration(one.busy_s),
        "needs_bytes": one.needs_bytes,
        "needs": size_text(one.needs_bytes) if one.needs_bytes else "",
        "place": index.place(one.place),
        "at_ns": round(one.at_s * 1e9),
        "difference": _difference(one, index) if one.what else None,
    }


def _difference(one: Graph, index: Index) -> dict[str, Any]:
    """In what a graph first differs from the closest one before."""
    subject = one.subject.removeprefix("of ")
    text = subject if one.what == "operation" else f"{one.what} of {subject}" if subject else one.what
    places: dict[int, str] = {}  # one line may be several of these: it is shown once
    for said, place in one.places:
        if number := index.place(place):
            places.setdefault(number, said)
    return {
        "text": text,
        "against": one.against,
        "common": plural(one.common, "operation"),
        "old": one.old,
        "new": one.new,
        "moved": f"{one.added:,} came, {one.removed:,} went" if one.added or one.removed else "",
        "places": [[label, number] for number, label in places.items()],
    }


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
            "needs": [*one.needs, *autotuned(one), *one.runs, *one.cuda_graphs],
            "phases": spent(one),
            "compile": duration(one.compile_s),
            "compile_s": one.compile_s,
        }
        for one in done.functions
    ]
    note = f"{plural(done.graphs, noun)} in {duration(done.total_s)}, {percent(share)} of the run"
    charges = [[duration(charge.seconds), charge.why, charge.seconds] for charge in done.charges]
    note = note if done.count else "compiled before the recording began"
    note += f". CUDA graphs: {done.cuda_graphs.text}" * bool(done.cuda_graphs.text)
    note += f". Run time: {done.run_time.text}" * bool(done.run_time.text)
    return {
        "count": done.count,
        "note": note if done.count or done.run_time.text else "",
        "rows": rows,
        "charges": charges,
    }


def torch_tpu(done: TorchTpuStat, index: Index) -> dict[str, Any]:
    """The batches of operations that TorchTPU put off, by the reason it cut them for."""
    rows = [
        {
            "reason": reason(one),
            "count": one.count,
            "facts": cut(one),
            "places": [index.place(place) for place in one.places],
        }
        for one in done.reasons
    ]
    return {"count": done.batches, "note": put_off(done) if done.batches else "", "rows": rows, "text": done.text}


def again(calls: tuple[Again, ...], report: Report, index: Index) -> list[dict[str, Any]]:
    """Calls for which a function was compiled again, and in what they differ from earlier ones."""
    return [
        {
            "name": one.name,
            "place": index.place(one.place),
            "step": f"step {one.step:,}" if one.step >= 0 and report.steps else "",
            "compile": duration(one.compile_s),
            "changes": [list(change) for change in one.changes],
        }
        for one in calls[:_AGAIN]
    ]


def breaks(functions: tuple[Function, ...], index: Index) -> list[dict[str, Any]]:
    """A tree for each function of torch.compile that is cut: its graphs, and the breaks between them."""
    return [
        {
            "name": one.name,
            "place": index.place(one.place),
            "compile": duration(one.compile_s),
            "graphs": plural(one.graphs, "graph"),
            "breaks": [_break(cut, index) for cut in one.breaks],
        }
        for one in functions
        if one.breaks
    ]


def _break(one: Break, index: Index) -> dict[str, Any]:
    return {
        "place": index.place(one.place),
        "reason": one.reason,
        "explanation": one.explanation,
        "hint": one.hint,
        "number": one.number,
        "by_design": one.by_design,
        "times": times(one.count),
        "vain": duration(one.vain_s) if one.vain_s else "",
        "plain": one.plain,
        "breaks": [_break(cut, index) for cut in one.behind],
    }
