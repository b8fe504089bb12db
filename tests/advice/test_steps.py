"""Advice on barriers, and on what grows, is taken."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import xlaprof
import xlaprof.runtime as xr
from tests.advice.taken import Case, Program, findings, observe, take
from tests.story import Story
from xlaprof.events import Compile
from xlaprof.runtime.instruments import live_tensors

DEVICE = "xla"


def trains(*between: str) -> Program:
    """A step with barriers ``between`` its parts, besides the one at its end."""

    def program() -> None:
        model = nn.Linear(16, 1).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        total = torch.zeros((), device=DEVICE)
        for step in range(12):
            with xlaprof.StepTrace("train", step_num=step):
                optimizer.zero_grad()
                loss = model(torch.ones(8, 16).to(DEVICE)).square().mean()
                if "loss" in between:
                    xr.sync()
                loss.backward()
                if "backward" in between:
                    xr.sync()
                optimizer.step()
                if "step" in between:
                    xr.sync()
                total += loss.detach()
                xr.sync()

    return program


class Cut(nn.Module):
    def __init__(self, barrier: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.barrier = barrier

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).tanh()
            if self.barrier:
                xr.sync()
        return x


def forwards(barrier: bool) -> Program:
    def program() -> None:
        model = Cut(barrier).to(DEVICE)
        with torch.no_grad():
            for _ in range(12):
                out = model(torch.ones(4, 8).to(DEVICE)).sum()
                xr.sync()
                del out

    return program


def averages(each: bool) -> Program:
    def program() -> None:
        weights = [torch.ones(3 + n, 4).to(DEVICE) for n in range(5)]
        shadow = [weight.clone() for weight in weights]
        xr.sync()
        for _ in range(12):
            for weight in weights:
                weight.add_(torch.ones(4).to(DEVICE))
            xr.sync()
            for n, weight in enumerate(weights):
                shadow[n].mul_(0.9).add_(weight, alpha=0.1)
                if each:
                    xr.sync()
            if not each:
                xr.sync()

    return program


def accumulates(each: bool) -> Program:
    def program() -> None:
        model = nn.Linear(6, 2).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for n in range(24):
            model(torch.ones(4, 6).to(DEVICE)).square().mean().backward()
            if n % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
                if not each:
                    xr.sync()
            if each:
                xr.sync()

    return program


def multiplies(ends_turns: bool) -> Program:
    def program() -> None:
        weight = torch.ones(4, 4, device=DEVICE)
        xr.sync(wait=True)
        for _ in range(24):
            for _ in range(5):
                weight = weight @ weight * 0.1
            if ends_turns:
                xr.sync()
        weight.sum().item()

    return program


def carries(detached: bool) -> Program:
    def program() -> None:
        weight = torch.eye(4).to(DEVICE).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1)
        hidden = torch.ones(4, 4).to(DEVICE)
        for _ in range(8):
            hidden = (hidden @ weight.clone()).tanh()
            hidden.sum().backward(retain_graph=not detached)
            optimizer.step()
            optimizer.zero_grad()
            if detached:
                hidden = hidden.detach()
            xr.sync()

    return program


def reads(barrier: bool) -> Program:
    def program() -> None:
        weight = torch.ones(4, 4).to(DEVICE)
        for n in range(8):
            weight = weight * 0.5 + torch.ones(4, 4).to(DEVICE)
            loss = (weight @ weight).sum()
            if barrier:
                xr.sync()
            print(loss.item() if n % 4 == 0 or not barrier else "")

    return program


def relaxes(barrier: bool) -> Program:
    """A field that is looked at after more and more sweeps; and another one, for which nothing is compiled."""

    def solve(field: torch.Tensor) -> None:
        done = 0
        for until in (2, 5, 9, 15, 23, 34, 48):
            while done < until:
                field = (field + field.roll(1, 0) + field.roll(1, 1)) / 3.0
                done += 1
                if barrier:
                    xr.sync()
            xr.sync()
            print(field.sum().item())

    def program() -> None:
        solve(torch.eye(6).to(DEVICE))
        solve(torch.ones(6, 6).to(DEVICE))

    return program


def heats(barrier: bool) -> Program:
    """A rod that is looked at after more and more turns, which begins anew, and whose flame has burnt down once."""

    def solve(flame: list[float]) -> None:
        rod, done = torch.zeros(2, 7, device=DEVICE), 0
        for until in (3, 5, 8, 12, 17, 23, 30, 38):
            while done < until:
                rod = (rod + flame[done]) * 0.5 + rod.roll(1, 1).tanh()
                done += 1
                if barrier:
                    xr.sync()
            xr.sync()
            print(rod.sum().item())

    def program() -> None:
        solve([1.7 / (1 + at) if at < 24 else 0.0 for at in range(38)])

    return program


BARRIERS = [
    Case(
        "barriers everywhere",
        "excess_barriers",
        trains("loss", "backward", "step"),
        "Keep the barrier at the end of the step",
        trains(),
    ),
    Case(
        "in the model",
        "excess_barriers",
        forwards(True),
        "Remove this barrier, and keep the one at the end of the step",
        forwards(False),
    ),
    Case(
        "in a loop over tensors", "excess_barriers", averages(True), "Call it once, after the loop at ", averages(False)
    ),
    Case(
        "after each micro-batch",
        "excess_barriers",
        accumulates(True),
        "Put the barrier right after the optimizer's step",
        accumulates(False),
    ),
    Case(
        "none",
        "missing_barrier",
        multiplies(False),
        " at the end of every turn of the loop",
        multiplies(True),
        counts=(),
    ),
    Case(
        "a state that is carried",
        "growing_graph",
        carries(False),
        "Detach what is carried",
        carries(True),
        counts=(Compile,),
    ),
    Case(
        "a loop inside that turns more often each time",
        "growing_graph",
        relaxes(False),
        "at the end of every turn of that loop",
        relaxes(True),
        counts=(Compile,),
    ),
    Case(
        "a loop inside, from a number on that is special",
        "growing_graph",
        heats(False),
        "at the end of every turn of that loop",
        heats(True),
        counts=(Compile,),
    ),
    Case(
        "none before a read",
        "growing_graph",
        reads(False),
        ", and read after it",
        reads(True),
        counts=(Compile,),
    ),
]


def test_a_special_number_in_a_graph_that_is_new_by_its_length_is_no_cause(tmp_path: Path) -> None:
    found = {one.kind for one in findings(observe(heats(False), tmp_path / "run.log").events)}
    assert "growing_graph" in found
    assert "recompile" not in found


@pytest.mark.parametrize("case", BARRIERS, ids=lambda case: case.name)
def test_a_step_is_one_small_graph(case: Case, tmp_path: Path) -> None:
    taken = take(case, tmp_path)
    assert [one.kind for one in findings(taken.before.events)].count(case.kind) == 1
    largest = [max(one.ops for one in run.of(Compile)) for run in (taken.before, taken.after)]
    if case.kind != "excess_barriers":
        assert largest[1] * 4 <= largest[0]


class History:
    def __init__(self, kept: Any) -> None:
        self.kept = kept


def keeps(keep: Callable[[Any, int, Any], object], kept: Callable[[], Any] = list) -> Program:
    def program() -> None:
        model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)).to(DEVICE)
        history = History(kept())
        for n in range(150):
            out = model(torch.ones(64, 16).to(DEVICE))
            keep(history.kept, n, out)
            xr.sync()
            del out
        xr.sync()

    return program


def in_order(kept: Any, n: int, out: Any) -> None:
    kept.append(out)


def detached(kept: Any, n: int, out: Any) -> None:
    kept.append(out.detach().mean())


def features(kept: Any, n: int, out: Any) -> None:
    features = torch.tanh(out.detach().repeat(1, 32))
    kept.append(features)


def on_the_host(kept: Any, n: int, out: Any) -> None:
    features = torch.tanh(out.detach().repeat(1, 32))
    xr.sync()
    if n % 10 == 0:
        kept.append(features.cpu())


def by_number(kept: Any, n: int, out: Any) -> None:
    kept[n] = torch.tanh(out.detach().repeat(1, 32))


def by_number_limited(kept: Any, n: int, out: Any) -> None:
    kept[n] = torch.tanh(out.detach().repeat(1, 32))
    kept.pop(n - 4, None)


GROWING = [
    Case("a history with gradients", "growth", keeps(in_order), "Keep a detached copy (.detach())", keeps(detached)),
    Case(
        "a list without a limit",
        "growth",
        keeps(features),
        " has no more use for (give it a limit: ",
        keeps(features, lambda: collections.deque(maxlen=8)),
        also=("collections.deque(maxlen=...)",),
    ),
    Case("a list on the host", "growth", keeps(features), "or keep it on the host", keeps(on_the_host)),
    Case(
        "a dict without a limit",
        "growth",
        keeps(by_number, dict),
        " has no more use for (give it a limit: ",
        keeps(by_number_limited, dict),
        also=("a largest size",),
    ),
]


@pytest.mark.parametrize("case", GROWING, ids=lambda case: case.name)
def test_what_is_alive_grows_no_more(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tensors, "_FIRST_NS", 10**12)  # however slow the machine is
    take(case, tmp_path)


def test_collections_after_a_freeze_look_at_little() -> None:
    import gc

    gc.unfreeze()  # what was imported is looked at, as in a program
    gc.collect()
    before = len(gc.get_objects())
    gc.freeze()
    assert len(gc.get_objects()) * 100 < before


def slower(by: float) -> Story:
    story = Story()
    for n in range(200):
        with story.step():
            story.trace(2 + by * n)
            story.barrier(story.line(20, "xr.sync()"), device=5)
    return story


def test_steps_that_go_through_all_earlier_ones_get_slower() -> None:
    (finding,) = slower(0.1).findings("growth")
    assert "Look for something that grows with the number of steps" in finding.advice
    assert slower(0.0).findings() == []


def compiled(*graphs: tuple[int, float]) -> Story:
    """Parts of a step, each a graph: operations, and seconds to compile."""
    story = Story()
    for _ in range(10):
        with story.step():
            story.trace(5)
            for n, (ops, seconds) in enumerate(graphs):
                barrier = story.line(20 + n, "xr.sync()")
                story.barrier(barrier, device=500, graph=f"part {n}", compile=seconds * 1000, ops=ops)
    story.finish()
    return story


def test_two_graphs_of_half_the_size_are_no_finding() -> None:
    (finding,) = compiled((1000, 2.0), (20_000, 300.0)).findings()
    assert "Put a barrier (sync()) between its parts" in finding.advice
    assert compiled((1000, 2.0), (10_000, 40.0), (10_000, 40.0)).findings() == []
