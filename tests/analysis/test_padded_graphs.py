"""Batches of graphs are padded so that the real nodes and graphs get what they got: the code is run as it stands."""

from __future__ import annotations

from typing import Any

import torch
from story import Story

from xlaprof.analysis.model import Finding
from xlaprof.events import Difference, GraphDiff, Operation

COUNTS = [(30, 71), (28, 60), (35, 64), (33, 88), (26, 80), (31, 66)]  # of particles and of springs


def springs(*, again: int = 0) -> Finding:
    """Particles of several bodies that springs hold together, with a stiffness of each spring and the body of each
    particle; each batch has its own numbers of both. ``again``: how often the last one comes again."""
    story = Story()
    barrier = story.line(90, "torch_xla.sync()")
    moved = {
        name: story.line(line, f"{name} = {name}.to(device)")
        for line, name in enumerate(("place", "body", "spring", "stiffness"), 31)
    }
    step = story.line(52, "force = step(place, spring, stiffness, body)")
    counts = [*COUNTS, *COUNTS[-1:] * again]
    for n, ((was, held), (is_now, holds)) in enumerate(zip([counts[0], *counts], counts, strict=False)):
        differs = [
            ("place", "aten::addmm", f"f32[{was},3]", f"f32[{is_now},3]"),
            ("body", "aten::index_add_", f"s64[{was}]", f"s64[{is_now}]"),
            ("spring", "aten::select", f"s64[2,{held}]", f"s64[2,{holds}]"),
            ("stiffness", "aten::mul", f"f32[{held},1]", f"f32[{holds},1]"),
        ]
        differences = [
            Difference("shape", old, new, "self", came=Operation(name, step), made=moved[which], moved=True)
            for which, name, old, new in differs
        ]
        with story.step():
            change = GraphDiff(n, differences=differences, total=4) if n else None
            story.barrier(barrier, 8, f"{is_now} and {holds}", change=change)
            story.spend(10)
    (finding,) = story.findings("recompile")
    return finding


def forces(bodies: int, place: Any, body: Any, spring: Any, stiffness: Any) -> Any:
    """Of each body: a bias is added, as a layer does, so that what pads gets something as well."""
    source, target = spring
    pulled = torch.zeros_like(place).index_add(0, target, (place[source] - place[target] + 1) * stiffness + 0.5)
    return torch.zeros(bodies, 3).index_add(0, body, (pulled + place + 1).tanh())


def test_the_code_that_pads_leaves_the_real_graphs_as_they_are() -> None:
    remedy = springs().remedy
    for particles, held in COUNTS:
        batch = {
            "place": torch.randn(particles, 3),
            "body": torch.arange(4).repeat_interleave(9)[:particles],
            "spring": torch.randint(particles, (2, held)),
            "stiffness": torch.rand(held, 1),
        }
        padded: dict[str, Any] = {"torch": torch, "graphs": 4, "nodes": 36, **batch}
        exec(remedy, padded)
        assert (len(padded["place"]), padded["spring"].shape[1]) == (36, 88)
        assert len(padded["body"]) == 36
        torch.testing.assert_close(forces(5, *(padded[one] for one in batch))[:4], forces(4, *batch.values()))


def test_the_words_name_what_the_code_pads_with() -> None:
    finding = springs()
    assert "dimension 0 of place and dimension 0 of body to 36" in finding.advice, "one more than came"
    assert "pad dimension 1 of spring with the number of the last node" in finding.advice
    assert "and dimension 0 of body with the number of that graph" in finding.advice
    assert "repeat the last one" not in finding.advice


def test_larger_ones_may_come_where_each_came_once() -> None:
    assert "larger ones may come" in springs().advice
