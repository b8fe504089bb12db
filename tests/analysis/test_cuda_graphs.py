"""What is said of CUDA graphs, from planted events: what runs without, and what is recorded again and again."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from story import MS

import xlaprof
from xlaprof.analysis.run import Run
from xlaprof.events import CudaGraph, Look, NoCudaGraph
from xlaprof.pages.json import to_json
from xlaprof.pages.terminal import render

from .compiling import Compiling

#: of benchmarks/cuda_graphs.py on an H200, PyTorch 2.11
RECORDED = Path(__file__).parent / "recorded"


class Graphed(Compiling):
    """A story of functions that are compiled to run by CUDA graphs."""

    def record(self, ms: float = 20, **fields: object) -> None:
        start = self.story.now
        self.story.spend(ms)
        where = {"func": self.func, "stack": self.call, "code": self.code, **fields}
        self.story.emit(CudaGraph(t=start, dur=round(ms * MS), compile="0/0", **where))  # type: ignore[arg-type]

    def without(self, kind: str, line: int = 0, **fields: object) -> None:
        where = {"func": self.func, "stack": self.call, "code": self.code, "line": line, **fields}
        self.story.emit(NoCudaGraph(t=self.story.now, compile="0/0", kind=kind, **where))  # type: ignore[arg-type]

    def run(self) -> Run:
        return self.story.run()


def test_a_function_that_runs_by_a_cuda_graph_is_no_finding() -> None:
    told = Graphed()
    told.compile("0/0")
    told.record()
    assert told.findings() == []
    (function,) = told.run().report().torch_compile.functions
    assert function.cuda_graphs == ("1 CUDA graph recorded in 20 ms",)
    stat = told.run().report().torch_compile.cuda_graphs
    assert (stat.functions, stat.without, stat.part, stat.recordings) == (1, 0, 0, 1)
    assert stat.text == "1 of 1 function runs by CUDA graphs."


def test_an_argument_that_is_written_is_told_at_the_line_that_writes_it() -> None:
    told = Graphed()
    told.compile("0/0")
    told.without(
        "mutation", told.story.line(12, "cache[:, at] = x", func="forward"), reason="mutated inputs (1 instances)"
    )
    (finding,) = told.findings("cuda_graph")
    assert (finding.place.line, finding.count, finding.cost_s) == (12, 1, 0.0)
    assert finding.cause == (
        "All of forward runs without a CUDA graph, though it was compiled for them: an argument is written in place."
    )
    assert finding.advice.startswith("Write into a parameter or buffer")
    assert {place.line for place in finding.also} == {40, 10}
    assert finding.evidence == ("PyTorch's words: mutated inputs (1 instances)",)


def test_some_operations_left_out_cut_it_into_several() -> None:
    told = Graphed()
    told.compile("0/0")
    at = told.story.line(14, "host = y.cpu()", func="forward")
    told.without("copy", at, ops=1, all=5)
    told.record()
    told.record()
    (finding,) = told.findings("cuda_graph")
    assert finding.place.line == 14
    assert finding.cause.startswith(
        "1 operation of forward runs without a CUDA graph, though it was compiled for them, and"
    )
    (function,) = told.run().report().torch_compile.functions
    assert function.cuda_graphs[1] == (
        "1 operation without a CUDA graph: a tensor is copied between the GPU and the host at train.py:14"
    )
    assert told.run().report().torch_compile.cuda_graphs.part == 1


def test_what_somebody_asked_for_is_told_and_no_finding() -> None:
    told = Graphed()
    told.compile("0/0")
    told.without("dynamic", ops=3, all=3)
    told.without("asked")
    assert told.findings("cuda_graph") == []
    stat = told.run().report().torch_compile.cuda_graphs
    assert (stat.functions, stat.without) == (1, 1)


def test_recordings_for_many_sizes_are_one_finding_that_costs_those_beyond_eight() -> None:
    told = Graphed()
    told.compile("0/0")
    for size in range(10, 22):
        told.record(10, sizes=f"f32[{size},64]")
    (finding,) = told.findings("cuda_graph")
    assert (finding.place.line, finding.count) == (40, 12)
    assert finding.cost_s == pytest.approx(0.04)
    assert "for 12 sizes of its inputs (f32[10,64], f32[11,64], f32[12,64] and 9 more)" in finding.cause
    assert finding.values[:2] == (("f32[10,64]", 1), ("f32[11,64]", 1))
    assert len(list(finding.counted.among([]))) == 12


def test_eight_sizes_are_none() -> None:
    told = Graphed()
    told.compile("0/0")
    for size in range(10, 18):
        told.record(10, sizes=f"f32[{size},64]")
    assert told.findings("cuda_graph") == []


def test_parameters_that_move_are_told_at_the_line_that_uses_them() -> None:
    told = Graphed()
    told.compile("0/0")
    told.record()
    used = told.story.line(11, "return x @ self.w", func="forward")
    for _ in range(3):
        told.record(30, again="static input data pointer changed", line=used)
    (finding,) = told.findings("cuda_graph")
    assert (finding.place.line, finding.count) == (11, 3)
    assert finding.cost_s == pytest.approx(0.09)
    assert (
        "recorded again 3 times, 90 ms in all, as those before did not fit: static input data pointer" in finding.cause
    )
    assert finding.advice.startswith("Let parameters and buffers stay where they are")


def test_the_share_without_is_the_time_of_the_main_thread_in_the_calls() -> None:
    told = Graphed()
    told.compile("0/0")
    told.record()
    told.call = other = told.story.line(50, "slow(x)")
    told.code, told.func = told.story.line(20, "def slow(x):", func="slow"), told.story.text("slow")
    told.compile("1/0")
    told.without("mutation")
    story = told.story
    for line, ms in ((other, 1500), (story.line(40, "loss = fast(x)"), 500)):
        start = story.now
        story.spend(ms)
        story.emit(Look(start, round(ms * MS), line, "torch"))
    stat = told.run().report().torch_compile.cuda_graphs
    assert (stat.calls_s, stat.without_s) == (pytest.approx(2.0), pytest.approx(1.5))
    assert stat.text == (
        "1 of 2 functions runs by CUDA graphs, 1 without (slow): the main thread was in calls of that for 1.50 s, 75% "
        "of its time in calls of all of them."
    )


def test_it_is_in_the_page_and_in_json() -> None:
    told = Graphed()
    told.compile("0/0")
    told.without("mutation", told.story.line(12, "x.add_(1)", func="forward"))
    report = told.run().report()
    console = Console(width=100, file=io.StringIO())
    console.print(render(report, 100))
    text = " ".join(console.file.getvalue().split())
    assert "all of it without a CUDA graph: an argument is written in place at" in text
    assert "CUDA graphs 0 of 1 function" in text
    as_json = json.loads(json.dumps(to_json(report)))
    assert as_json["torch_compile"]["cuda_graphs"]["without"] == 1
    assert as_json["torch_compile"]["functions"][0]["cuda_graphs"]


def test_two_recordings_are_added_up() -> None:
    one, other = Graphed(), Graphed()
    for told in (one, other):
        told.compile("0/0")
        told.record()
        told.without("copy", told.story.line(14, "host = y.cpu()", func="forward"), ops=1, all=5)
    run = one.run()
    run.merge(other.run())
    stat = run.report().torch_compile.cuda_graphs
    assert (stat.functions, stat.recordings) == (1, 2)


def test_a_forward_graph_and_its_backward_one_are_recorded_for_one_size() -> None:
    told = Graphed()
    told.compile("0/0")
    told.record(sizes="f32[24,64]")
    told.record(sizes="f32[24,10]", backward=True)
    (function,) = told.run().report().torch_compile.functions
    assert function.cuda_graphs == ("2 CUDA graphs recorded in 40 ms",)


def test_what_the_cpu_computes_and_its_copy_are_one_finding() -> None:
    told = Graphed()
    told.compile("0/0")
    told.without("cpu", ops=1, all=3)
    told.without("copy", ops=1, all=3)
    (finding,) = told.findings("cuda_graph")
    assert finding.place.line == 40
    assert finding.advice.startswith("Make this tensor on the GPU")


# -- recordings of a GPU


@pytest.mark.parametrize(
    ("name", "line", "count", "says"),
    [
        ("mutation", 15, 1, "All of step runs without a CUDA graph, though it was compiled for them: an argument"),
        ("copy", 16, 1, "1 operation of step runs without a CUDA graph, though it was compiled for them, and no"),
        ("sizes", 16, 12, "<lambda> was recorded as a CUDA graph for 12 sizes of its inputs (f32[10,64], f32[11,64]"),
        ("moved", 19, 6, "The CUDA graph of Model.forward was recorded again 6 times, 12 ms in all, as those before"),
    ],
)
def test_what_a_gpu_recorded(name: str, line: int, count: int, says: str) -> None:
    report = Run().feed_all(xlaprof.read(RECORDED / f"cuda_graph_{name}.log")).report()
    (finding,) = [one for one in report.findings if one.kind == "cuda_graph"]
    assert (finding.place.line, finding.count) == (line, count)
    assert finding.cause.startswith(says)


def test_a_training_that_a_gpu_recorded_runs_by_two_graphs() -> None:
    report = Run().feed_all(xlaprof.read(RECORDED / "cuda_graph_training.log")).report()
    assert [one.kind for one in report.findings if one.kind == "cuda_graph"] == []
    assert report.torch_compile.cuda_graphs.text == "1 of 1 function runs by CUDA graphs."
    assert report.torch_compile.cuda_graphs.recordings == 2  # forward and backward
