"""A call differs in two things from what was compiled, one cause has guards of two sorts, sizes are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

from tests.sources.advised import T, calls
from tests.sources.changing_values import Lion, deep, pairs, pressed, updated
from tests.sources.observed import line_of, observe
from xlaprof.events import Recompile

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def test_of_two_numbers_that_change_together_both_are_causes_each_with_its_advice(tmp_path: Path) -> None:
    found = observe(tmp_path, updated())
    assert {guard.subject for one in found.of(Recompile) for guard in one.guards} == {"step", "self.rate"}
    (finding,) = found.findings()
    assert "step" in finding.cause
    assert "self.rate" in finding.cause
    assert finding.cause.count("a cause by itself") == 1
    assert "Keep self.rate in a tensor" in finding.advice
    assert "makes step a variable of the graph" in finding.advice
    assert finding.remedy == "", "half of the change mends nothing"
    assert line_of(Lion.update, "self.rate / step") in (finding.place.line, *(one.line for one in finding.also))


def test_what_a_finding_of_its_own_blames_is_not_told_with_another(tmp_path: Path) -> None:
    """A module's whole number changes at each call, its float becomes a variable after the first change."""

    class Both(torch.nn.Module):
        step, rate = 0, 0.0

        def forward(self, x: Any) -> Any:
            return x * self.step * self.rate

    def program() -> None:
        model = Both()
        fast = torch.compile(model, backend="eager")
        for step in (2, 3, 4, 5):
            model.step, model.rate = step, step / 10
            fast(T(3))

    causes = [finding.cause for finding in observe(tmp_path, program).findings()]
    assert sorted(name for cause in causes for name in ("self.step", "self.rate") if name in cause) == [
        "self.rate",
        "self.step",
    ]


def test_sizes_of_two_inputs_are_told_both_and_marked_both(tmp_path: Path) -> None:
    (finding,) = observe(tmp_path, calls(lambda x, y: x.sum() * y, *pairs())).findings()
    assert "y changed with it, from f32[8] to f32[12], a cause by itself" in finding.cause
    assert [line for line in finding.remedy.splitlines() if "maybe_mark_dynamic" in line] == [
        "torch._dynamo.maybe_mark_dynamic(x, 0)  # before the first call",
        "torch._dynamo.maybe_mark_dynamic(y, 0)  # before the first call",
    ]


def test_of_many_inputs_whose_sizes_change_some_are_named_once_each(tmp_path: Path) -> None:
    """Those of the blamed one's size are padded, or made dynamic, with it."""
    fast = torch.compile(lambda parts: sum(one.sum() for one in parts), backend="eager", dynamic=False)
    shapes = ([T(2, n), T(2, n), *(T(2, n + more) for more in range(1, 6))] for n in range(4, 8))
    (finding,) = observe(tmp_path, lambda: [fast(parts) for parts in shapes]).findings()
    assert "parts[0] changed from f32[2,4] to f32[2,5] (and 2 more such changes)" in finding.cause
    assert "parts[1]" not in finding.cause
    for n in (2, 3, 4):
        sizes = f"from f32[2,{n + 3}] to f32[2,{n + 4}] (and 2 more such changes)"
        assert finding.cause.count(f"parts[{n}] changed with it, {sizes}, a cause by itself") == 1
    assert "so did 2 more, each a cause by itself" in finding.cause


def test_layers_that_are_left_out_by_turns_are_not_to_be_kept(tmp_path: Path) -> None:
    (finding,) = observe(tmp_path, deep(gated=False)).findings()
    assert "with self.active in a tensor" in finding.advice
    assert "keep" not in finding.advice.lower()


def rows(*widths: int) -> Iterator[Any]:
    return ((T(2, width),) for width in widths)


def test_few_sizes_under_dynamic_false_are_their_authors_choice_which_is_said_with_its_cost(tmp_path: Path) -> None:
    found = observe(tmp_path, calls(lambda x: x * 2, *rows(12, 24, 40, 12, 24, 40), dynamic=False))
    assert found.counts.recompiles == 2
    assert found.findings() == []
    (charge,) = [one for one in found.report.torch_compile.charges if one.what == "chosen"]
    assert charge.seconds == pytest.approx(sum(one.dur for one in found.run.torch_compile.recompiles) / 1e9)
    assert "the 3 sizes 12, 24 and 40 of x (dimension 1), for which <lambda> was compiled again twice" in charge.why
    assert "dynamic=False asks for a graph of each" in charge.why


def test_buckets_of_doubled_sizes_are_it_too_however_many(tmp_path: Path) -> None:
    assert observe(tmp_path, calls(lambda x: x * 2, *rows(8, 16, 32, 64, 128), dynamic=False)).findings() == []


def test_any_length_under_dynamic_false_and_a_last_batch_are_still_mistakes(tmp_path: Path) -> None:
    found = observe(tmp_path, calls(lambda x: x * 2, *rows(11, 13, 14, 17), dynamic=False))
    (finding,) = found.findings()
    assert "compile without dynamic=False" in finding.advice
    torch._dynamo.reset()
    (tmp_path / "last").mkdir()
    (finding,) = observe(tmp_path / "last", calls(lambda x: x * 2, (T(8),), (T(5),), dynamic=False)).findings()
    assert "drop_last=True" in finding.advice


def test_the_keys_of_a_dict_are_one_cause_however_their_guards_are_written(tmp_path: Path) -> None:
    """The first version fits one key only by the number of them; later ones by their names."""

    def mixed(voices: dict[str, Any]) -> Any:
        total = torch.zeros(3)
        for name, voice in voices.items():
            total = total + voice * (2 if name == "bass" else 1)
        return total

    sung = (["alto"], ["alto", "bass"], ["tenor", "bass"], ["tenor"], ["tenor", "bass", "alto"], ["alto", "tenor"])
    found = observe(tmp_path, calls(mixed, *(({name: T(3) for name in names},) for names in sung)))
    texts = {one.guards[0].text for one in found.of(Recompile)}
    assert any(text.startswith("len(") for text in texts)
    assert any("dict.keys" in text for text in texts)
    (finding,) = found.findings()
    assert finding.count == found.counts.recompiles == 5
    assert finding.place.line == line_of(mixed, "voices.items()")
    assert "the keys of voices" in finding.cause
    assert "Hand over voices with the same keys" in finding.advice


def test_a_number_that_another_finding_tells_of_is_not_advised_what_changes_nothing_for_it(tmp_path: Path) -> None:
    """``dynamic=True`` would make a variable of the factor, and none of the bound, which clamp() makes constant."""
    findings = observe(tmp_path, pressed()).findings("recompile")
    assert len(findings) == 2
    assert not any("Do the same for self.most" in finding.advice for finding in findings)
    assert not any("self.most" in finding.cause and "dynamic=True" in finding.advice for finding in findings)


class Squelch(torch.nn.Module):
    """What is louder than a limit above its floor is cut to that; the floor rises in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.floor = 0.1
        self.gain = torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        louder = self.gain(x)
        return louder.clamp(max=1 + self.floor)


def test_an_expression_with_a_number_of_an_object_is_told_at_the_line_that_uses_it(tmp_path: Path) -> None:
    def program() -> None:
        squelch = Squelch()
        fast = torch.compile(squelch, backend="aot_eager")
        for n in range(5):
            squelch.floor = 0.1 + n / 100
            fast(T(3))

    found = observe(tmp_path, program)
    subjects = {guard.subject for one in found.of(Recompile) for guard in one.guards}
    assert "(1.0 + self.floor)" in subjects, "PyTorch names no line of the program's for it"
    findings = found.findings("recompile")
    assert {one.place.line for one in findings} == {line_of(Squelch.forward, "louder.clamp")}
    assert all("Keep self.floor in a tensor" in one.advice for one in findings)


class Annealed(torch.nn.Module):
    """Its dropouts have one schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.drop_early, self.drop_late = torch.nn.Dropout(0.0), torch.nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        x = self.drop_early(x).tanh()
        return self.drop_late(x.relu())


def test_rates_that_one_schedule_sets_are_one_cause_and_all_are_to_be_changed(tmp_path: Path) -> None:
    def program() -> None:
        model = Annealed()
        fast = torch.compile(model, backend="eager")
        for rate in (0.0, 0.1, 0.2, 0.3, 0.4):
            model.drop_early.p = model.drop_late.p = rate
            fast(T(3))

    (finding,) = observe(tmp_path, program).findings()
    both = "drop_early", "drop_late"
    lead, other = both if "value of self.drop_early.p" in finding.cause else reversed(both)
    assert f"self.{other}.p changed with it" in finding.cause
    assert f"Write what self.{lead}() computes as a mask" in finding.advice
    assert finding.advice.endswith(f"Do the same for self.{other}.p.")


def test_lists_that_grow_together_are_both_to_be_kept_at_one_length(tmp_path: Path) -> None:
    def recall(ask: Any, asked: Any, told: Any) -> Any:
        if asked:
            return (torch.stack(asked) * ask).sum() + torch.stack(told).sum()
        return ask.sum()

    def program() -> None:
        fast = torch.compile(recall, backend="eager")
        asked, told = [T(3), T(3)], [T(3), T(3)]
        fast(T(3), [T(3)], [T(3)])  # the first version tests whether there is one, the next ones how many there are
        for _ in range(5):
            fast(T(3), asked, told)
            asked.append(T(3))
            told.append(T(3))

    (finding,) = observe(tmp_path, program).findings()
    lead, other = ("asked", "told") if "The length of asked" in finding.cause else ("told", "asked")
    assert f"The length of {lead}" in finding.cause
    assert f"{other} changed with it" in finding.cause
    assert finding.advice.endswith(f"Do the same for {other}.")
