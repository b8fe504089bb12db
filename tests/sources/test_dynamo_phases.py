"""Compile time of torch.compile by phase: the phases of a real compilation sum to its wall time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.utils import dynamo_timed
from torch._guards import CompileId

from tests.sources.observed import observing
from xlaprof.events import Autotune, DynamoCompile
from xlaprof.sources.dynamo.phases import UNACCOUNTED, Phases, Tuned


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model(x: Any, w: Any) -> Any:
    for _ in range(8):
        x = torch.tanh(x @ w) + x
    return x.sum()


def test_the_phases_of_each_compilation_sum_to_its_wall_time(tmp_path: Path) -> None:
    slow = []

    def backend(graph: Any, inputs: Any) -> Any:
        began = time.perf_counter()
        while time.perf_counter() - began < 0.15:  # a compiler that takes its time
            pass
        slow.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend, dynamic=False)
    with observing(tmp_path / "run.log") as found:
        walls = []
        for rows in (4, 5, 6):
            x, w = torch.ones(rows, 8), torch.ones(8, 8)
            began = time.perf_counter_ns()
            compiled(x, w)
            walls.append(time.perf_counter_ns() - began)
    [done] = found
    compiles = done.of(DynamoCompile)
    assert len(compiles) == len(slow) == 3
    for one, wall in zip(compiles, walls, strict=True):
        assert sum(one.phases.values()) == pytest.approx(one.dur, rel=0.01)
        assert one.dur <= wall
        assert 0.15e9 <= one.phases["backend"] < one.dur
        assert one.phases["Dynamo"] > 0
        assert one.phases["guards"] > 0
        assert one.phases[UNACCOUNTED] < 0.2 * one.dur
    [function] = done.report.torch_compile.functions
    assert sum(seconds for _, seconds in function.phases) == pytest.approx(function.compile_s, rel=1e-4)
    assert dict(function.phases)["backend"] >= 0.45
    assert [seconds for _, seconds in function.phases] == sorted((one for _, one in function.phases), reverse=True)


def test_autograds_part_and_its_backward_pass_are_told_apart(tmp_path: Path) -> None:
    compiled = torch.compile(model, backend="aot_eager")
    with observing(tmp_path / "run.log") as found:
        compiled(torch.ones(4, 8), torch.ones(8, 8, requires_grad=True)).backward()
    forward = found[0].of(DynamoCompile)[0]
    assert forward.phases["AOTAutograd"] > 0
    for one in found[0].of(DynamoCompile):
        assert sum(one.phases.values()) == pytest.approx(one.dur, rel=0.02, abs=2e6)


def part(name: str, begin: float, end: float, *inner: Any) -> list[dict[str, Any]]:
    args = {"compile_id": "0/0"}
    return [
        {"name": name, "ph": "B", "ts": begin, "args": args},
        *(event for one in inner for event in one),
        {"name": name, "ph": "E", "ts": end, "args": args},
    ]


def test_a_parts_own_time_counts_for_its_phase() -> None:
    phases = Phases()
    inductor = part("inductor_compile", 300, 900, part("compile_file", 400, 800), part("Scheduler.codegen", 800, 850))
    backend = part("backend_compile", 200, 950, inductor)
    whole = part("entire_frame_compile", 0, 1000, part("bytecode_tracing", 10, 100), backend)
    for event in whole:
        phases.take(json.dumps(event))
    assert phases.of("0/0", False) == {
        "Dynamo": 90_000, "kernels": 400_000, "Inductor": 200_000, "backend": 150_000, UNACCOUNTED: 160_000,
    }  # fmt: skip
    assert phases.of("0/0", False) == {}


@st.composite
def trees(draw: Any, begin: int = 0, end: int = 10_000, deep: int = 3) -> list[dict[str, Any]]:
    cuts = sorted(draw(st.sets(st.integers(begin + 1, end - 1), max_size=6))) if deep and end - begin > 2 else []
    inner = [draw(trees(a, b, deep - 1)) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    names = st.sampled_from(["backend_compile", "aot_x", "inductor_compile", "compile_file", "anything", "gc"])
    name = draw(names) if deep < 3 else "entire_frame_compile"
    return part(name, begin, end, *inner)


@given(trees(), st.lists(st.integers(0, 60), max_size=3))
def test_whatever_is_within_what_the_phases_sum_to_the_whole(tree: list[dict[str, Any]], lost: list[int]) -> None:
    phases = Phases()
    kept = [event for at, event in enumerate(tree) if at in (0, len(tree) - 1) or at not in lost or event["ph"] == "B"]
    for event in kept:
        phases.take(event)
    spent = sum(phases.of("0/0", False).values())
    assert spent <= 10_000_000
    if len(kept) == len(tree):
        assert spent == 10_000_000


def moment(name: str, kind: str, ms: float, **args: Any) -> dict[str, Any]:
    return {"name": name, "ph": kind, "ts": ms * 1000, "args": {"compile_id": "0/0", **args}}


def test_templates_that_are_tuned_are_autotuning_and_named_by_operation_and_shapes() -> None:
    """As inductor writes it on a GPU under max-autotune."""
    tuned: list[Tuned] = []
    phases = Phases(tuned.append)
    shapes = {"autotune_shape": "2048x512, 512x512"}
    for event in (
        moment("entire_frame_compile", "B", 0),
        moment("fx_codegen_and_compile", "B", 1),
        moment("mm_template_precompiling", "B", 2),
        moment("mm_template_precompiling", "E", 7),
        moment("mm_template_autotuning", "B", 7, **shapes),
        moment("mm_template_autotuning", "E", 27, **shapes),
        moment("fx_codegen_and_compile", "E", 28),
        moment("entire_frame_compile", "E", 30),
    ):
        phases.take(event)
    assert phases.of("0/0", False) == {
        "kernels": 5_000_000, "autotuning": 20_000_000, "Inductor": 2_000_000, UNACCOUNTED: 3_000_000
    }  # fmt: skip
    assert tuned == [Tuned("mm 2048x512, 512x512", 20_000_000, "0/0", False, False)]


def test_a_kernel_that_is_tuned_when_it_first_runs_is_time_of_compiling(tmp_path: Path) -> None:
    """PyTorch's own timer tells of it, as its autotuner does where it first runs a kernel."""

    def scaled(x: Any) -> Any:
        return x * 2

    with observing(tmp_path / "run.log") as found:
        torch.compile(scaled, backend="eager")(torch.ones(3))
        named = {"kernel_name": "triton_poi_fused_mul_0"}
        with dynamo_timed(
            "CachingAutotuner.benchmark_all_configs",
            log_pt2_compile_event=True,
            metadata=named,
            compile_id=CompileId(frame_id=0, frame_compile_id=0),
            is_backward=False,
        ):
            began = time.perf_counter()
            while time.perf_counter() - began < 0.05:
                pass
    [done] = found
    (event,) = done.of(Autotune)
    assert (event.kernel, event.compile, event.apart) == ("triton_poi_fused_mul_0", "0/0", True)
    (function,) = done.report.torch_compile.functions
    assert function.name.endswith("scaled")
    assert dict(function.phases)["autotuning"] >= 0.05
    assert sum(seconds for _, seconds in function.phases) == pytest.approx(function.compile_s, rel=1e-3)
    [(kernel, seconds)] = function.tuned
    assert (kernel, seconds >= 0.05) == ("triton_poi_fused_mul_0", True)
