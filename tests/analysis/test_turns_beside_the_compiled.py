"""What the turns of a loop do beside what is compiled: which remedy is advised, and that one cause is one finding."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.analysis.test_beside_the_compiled import looking
from tests.story import MS
from xlaprof.events import Look
from xlaprof.pages.words import many, worth


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("kept = copy.deepcopy(self.shadow.state_dict())", True),
        ("self.shadow.load_state_dict(mixed)", True),
        ("norm = sum(p.grad.norm() ** 2 for p in net.parameters()) ** 0.5", True),
        ("torch._foreach_lerp_(self.shadow, list(net.parameters()), 0.01)", False),
        ("return self.down(self.up(x))", False),
    ],
)
def test_going_over_all_tensors_is_mended_without_compiling_it(code: str, told: bool) -> None:
    """To compile it would take longer than all of it in a short run; one operation on a list of tensors does not."""
    found = looking(code, 79, "torch", call="shadow.follow(net)").findings("idle_gap")
    assert [(one.place.line, round(one.gain_s, 1)) for one in found] == [(79, 4.0)] * told
    assert all(one.advice.startswith("Work on the lists of all tensors at once, in place") for one in found)


def test_a_function_that_two_loops_call_is_one_finding() -> None:
    compiling = looking("bank = mel(rate)", 79, call="for x, y in batches(heard):")
    story = compiling.story
    again = story.line(79, "bank = mel(rate)", func="slow", outer=(140,), loops=(0, 138), call="score(batches(kept))")
    for _ in range(5):
        story.emit(Look(story.now, 400 * MS, again, "python"))
        story.spend(600)
    (finding,) = compiling.findings("idle_gap")
    assert (finding.count, round(finding.cost_s, 1)) == (15, 6.0)
    assert "called at train.py:124 (for x, y in batches(heard):), and at line 140, most of it at" in finding.cause
    assert {124, 140} <= {place.line for place in finding.also}


@pytest.mark.parametrize(
    ("code", "advised"), [("order = scores.argsort(descending=True)", True), ("x = pick(y)", False)]
)
def test_what_sorts_all_is_shown_what_finds_the_first(code: str, advised: bool) -> None:
    (finding,) = looking(code, 79).findings("idle_gap")
    assert ("topk (argpartition in NumPy) finds them" in finding.advice) is advised


@pytest.mark.parametrize(
    ("code", "call", "begins"),
    [
        ("spec = stft(x)", "y = slow(rewards)", "Do once, before the loop"),
        ("spec = stft(x)", "norms = watch(loss)", "It takes what each turn computes: make it a part of what is"),
        (
            "spec = stft(x)",
            "watch(loss)",
            "Do it in each tenth turn, or more seldom, where it only shows or keeps something, or",
        ),
        ("spec = stft(x)", "x = neighbours(loss)", ""),  # and the next turn takes that
        ("y = [stft(one) for one in x]", "x = neighbours(loss)", "It takes what each turn computes"),  # can be faster
    ],
)
def test_what_takes_a_turns_results_is_not_to_be_done_before_the_loop(code: str, call: str, begins: str) -> None:
    """The compiled call is `loss = fast(x)`: what stands between two of them can only be left out, or made faster."""
    found = looking(code, 79, call=call).findings("idle_gap")
    assert [one.advice.startswith(begins) for one in found] == [True] * bool(begins)


def test_looks_are_counted_as_looks_not_as_times_that_it_happened() -> None:
    report = looking("bank = mel(rate)", 79).story.report()
    (finding,) = (one for one in report.findings if one.kind == "idle_gap")
    assert (many(finding), next(worth(finding, report))) == ("10 looks", ("Happened: ", "seen in 10 looks."))


def test_the_advised_average_is_that_of_tensor_by_tensor() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
    copied, listed = copy.deepcopy(net), [one.detach().clone() for one in net.parameters()]
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(net)  # the first is a copy
    for _ in range(4):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter += torch.randn_like(parameter)
            weights = copy.deepcopy(copied.state_dict())
            for name, value in net.state_dict().items():
                weights[name] = 0.9 * weights[name] + 0.1 * value
            copied.load_state_dict(weights)
            torch._foreach_lerp_(listed, list(net.parameters()), 0.1)
        averaged.update_parameters(net)
    torch.testing.assert_close(listed, list(copied.parameters()))
    torch.testing.assert_close(list(averaged.module.parameters()), list(copied.parameters()))
