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

from tests.sources.observed import observing
from xlaprof.events import DynamoCompile
from xlaprof.sources.dynamo.phases import UNACCOUNTED, Phases


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
