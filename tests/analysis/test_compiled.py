"""Findings about ``torch.compile`` from planted events: what is one, what is not, and what each costs."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from story import MS

from xlaprof.analysis.run import Run
from xlaprof.events import DynamoCompile, DynamoLimit, End, Event, GraphBreak, Guard, Look, Recompile

from .compiling import Compiling, shape


def test_recompilations_of_one_cause_are_one_finding_with_every_value() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    compiling.recompile("0/1", shape(4, 5), ms=300)
    compiling.recompile("0/2", shape(5, 9), ms=200)
    (finding,) = compiling.findings()
    assert (finding.kind, finding.place.line, finding.count) == ("recompile", 40, 2)
    assert finding.cost_s == pytest.approx(0.5)
    assert finding.change is not None
    assert (finding.change.old, finding.change.new) == ("f32[4,3]", "f32[5,3]")
    assert finding.values == (("4", 1), ("5", 1), ("9", 1))
    assert "maybe_mark_dynamic(x, 0)" in finding.advice
    assert finding.remedy.startswith("torch._dynamo.maybe_mark_dynamic(x, 0)")
    assert 10 in {place.line for place in finding.also}


def test_xlas_part_of_a_recompilation_is_its_cost_too() -> None:
    compiling = Compiling()
    compiling.compile("0/0", backend=compiling.story.text("openxla"))
    compiling.story.compile("first", 1000, compiling.call, trigger="dynamo")
    compiling.recompile("0/1", shape(32, 8), ms=100)
    compiling.story.compile("second", 700, compiling.call, trigger="dynamo")
    (finding,) = compiling.findings()
    assert finding.cost_s == pytest.approx(0.8)


def test_a_backward_graph_belongs_to_its_forward() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    compiling.recompile("0/1", shape(4, 5), ms=100)
    compiling.compile("0/1", 50, backward=True)
    (finding,) = compiling.findings()
    assert finding.cost_s == pytest.approx(0.15)


def test_a_value_is_reported_where_the_guard_was_made() -> None:
    compiling = Compiling()
    made = compiling.story.line(12, "y = x * self.k", func="forward")
    compiling.compile("0/0")
    compiling.recompile("0/1", Guard("value", "self.k", "2", "3", "self.k == 2", stack=made))
    (finding,) = compiling.findings()
    assert finding.place.line == 12
    assert {place.line for place in finding.also} == {40, 10}
    assert "from 2 to 3" in finding.cause
    assert "buffer" in finding.advice


def test_a_number_that_a_function_takes_as_such_is_not_advised_to_be_a_tensor() -> None:
    def advice(code: str) -> str:
        compiling = Compiling()
        made = compiling.story.line(12, code, func="forward")
        compiling.compile("0/0")
        compiling.recompile("0/1", Guard("value", "self.rate", "0.1", "0.2", "self.rate == 0.1", stack=made))
        (finding,) = compiling.findings()
        return finding.advice

    assert "alpha_dropout() is given a Python number" in advice("h = F.alpha_dropout(h, p=self.rate)")
    for computed in ("h = h * self.rate", "h = F.dropout(h * self.rate, self.rate)", "h = scaled(h, self.rate)"):
        assert "in a tensor (a buffer" in advice(computed)


def test_the_limit_joins_its_cause_and_comes_first() -> None:
    compiling = Compiling()
    expensive = compiling.story.line(90, "other = slow(y)")
    compiling.compile("0/0")
    for i in range(1, 8):
        with compiling.story.step():
            compiling.recompile(f"0/{i}", shape(i, i + 1), ms=10)
    compiling.recompile("5/1", Guard("dtype", "y", "float32", "float16", ""), ms=5000, stack=expensive)
    last = shape(8, 9)
    compiling.recompile("0/8", last, ms=1)
    limit = DynamoLimit(t=compiling.story.now, compile="0/8", func=compiling.func, stack=compiling.call, value=8)
    compiling.story.emit(msgspec.structs.replace(limit, guard=last))
    first, second = compiling.findings()
    assert (first.severity, first.place.line, first.count) == ("high", 40, 7)
    assert "recompile_limit = 8" in first.cause
    assert "since step 7" in first.cause
    assert "compiled again 7 times" in first.cause
    assert second.cost_s > first.cost_s


@pytest.mark.parametrize(
    ("with_it", "further"),
    [
        ((), ""),
        ((Guard("value", "(self.pace * 2)", "2", "4"),), ""),
        ((Guard("length", "self.laps", "0", "1"),), "self.laps"),
    ],
)
def test_what_else_may_change_is_said_at_a_limit_only_where_something_else_was_seen_to(
    with_it: tuple[Guard, ...], further: str
) -> None:
    """A runner's pace changes in each call; an expression with it is no other thing."""
    compiling = Compiling()
    compiling.compile("0/0")
    for i in range(1, 8):
        compiling.recompile(f"0/{i}", Guard("value", "self.pace", str(i), str(i + 1)), *(with_it if i == 1 else ()))
    last = Guard("value", "self.pace", "8", "9")
    compiling.recompile("0/8", last, ms=1)
    limit = DynamoLimit(t=compiling.story.now, compile="0/8", func=compiling.func, stack=compiling.call, value=8)
    compiling.story.emit(msgspec.structs.replace(limit, guard=last))
    (finding, *_) = compiling.findings()
    assert "only helps where the number of versions is bounded" in finding.advice
    assert ("PyTorch names the first guard" in finding.advice) == bool(further)
    assert not further or f"as {further} did, shows once this is mended" in finding.advice


def test_what_runs_eagerly_behind_a_limit_is_its_cost_and_not_the_programs_own_work() -> None:
    compiling = Compiling()
    story = compiling.story
    inside = story.line(14, "y = h @ w", func="forward", outer=(40,))
    outside, before = story.line(41, "loss.backward()"), story.line(14, "y = h @ w", func="forward")
    compiling.compile("0/0")
    story.emit(Look(story.now, 300 * MS, before, "torch"))
    story.spend(300)
    for i in range(1, 4):
        compiling.recompile(f"0/{i}", shape(i, i + 1), ms=100)
    limit = DynamoLimit(t=story.now, compile="0/3", func=compiling.func, stack=compiling.call, value=4)
    story.emit(msgspec.structs.replace(limit, code=compiling.code, guard=shape(3, 4)))
    for stack, ms in ((inside, 700), (outside, 400)):
        story.emit(Look(story.now, ms * MS, stack, "torch"))
        story.spend(ms)
    story.finish()
    report = story.report()
    (finding,) = report.findings
    assert "runs eagerly, silently (700 ms in forward)" in finding.cause
    assert (finding.cost_s, finding.gain_s) == (pytest.approx(1.0), pytest.approx(0.3))
    (running,) = (one for one in report.accounts if one.what == "run")
    assert running.explained_s == pytest.approx(0.7)
    assert running.normal_s == pytest.approx(0.7)  # before the limit, and outside of the function


def test_a_limit_without_its_recompilations_is_reported_all_the_same() -> None:
    compiling = Compiling()
    compiling.story.emit(DynamoLimit(t=0, compile="0/8", func=compiling.func, stack=compiling.call, value=8))
    (finding,) = compiling.findings()
    assert (finding.kind, finding.severity, finding.place.line) == ("recompile", "high", 40)


@pytest.mark.parametrize("kind", ["mode", "training", "requires_grad", "object", "type"])
def test_another_phase_with_a_line_of_its_own_is_no_finding(kind: str) -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    evaluation = compiling.story.line(60, "logits = fast(x)", func="evaluate")
    compiling.recompile("0/1", Guard(kind, "grad_mode", "True", "False"), shape(32, 64), stack=evaluation)
    assert compiling.findings() == []
    compiling.recompile("0/2", Guard(kind, "grad_mode", "False", "True"))
    assert len(compiling.findings()) == 1, "back at the first line: it goes to and fro"


def test_what_is_filled_within_what_is_filled_is_counted_once() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    grown = ("length", "self.kept"), ("length", "self.kept['a']"), ("value", "self.kept['a']['b']")
    for i, (kind, name) in enumerate(grown, 1):
        compiling.recompile(f"0/{i}", Guard(kind, name, f"{i}", f"{2 * i}", f"{name} == {i}"))
    assert sum(finding.count for finding in compiling.findings()) == len(grown)


def test_decoding_one_token_after_a_prefill_is_another_use_and_another_size_is_not() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    decode = compiling.story.line(60, "logits = fast(token)", func="answer")
    compiling.recompile("0/1", shape(12, 1), stack=decode)
    assert compiling.findings() == []
    compiling.recompile("0/2", shape(12, 9), stack=compiling.story.line(70, "fast(other)"))
    assert [finding.place.line for finding in compiling.findings()] == [70]


def test_a_value_that_changed_before_another_phase_came_back_is_the_cause_of_both_versions() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    evaluation = compiling.story.line(60, "logits = fast(x)", func="evaluate")
    mode = Guard("mode", "grad_mode", "True", "False")
    compiling.recompile("0/1", mode, stack=evaluation, against="0/0")
    made = compiling.story.line(20, "return x * SCALE", func="forward")
    compiling.recompile("0/2", Guard("value", "SCALE", "1.0", "0.9", "G['SCALE'] == 1.0", stack=made), against="0/0")
    compiling.recompile(
        "0/3", Guard("value", "SCALE", "1.0", "0.9", "G['SCALE'] == 1.0"), stack=evaluation, against="0/1"
    )
    (finding,) = compiling.findings()
    assert (finding.place.line, finding.count, "SCALE" in finding.cause) == (20, 2, True)


def test_a_size_that_changes_with_another_is_no_finding_of_its_own() -> None:
    """Batches of graphs: once the nodes are as many as before, and only the edges are not."""
    compiling = Compiling()
    compiling.compile("0/0")
    sizes = [(40, 90), (44, 97), (37, 85), (41, 93)]
    for i, ((nodes, edges), (more, others)) in enumerate(pairwise(sizes), 1):
        compiling.recompile(
            f"0/{i}",
            shape(nodes, more),
            msgspec.structs.replace(shape(edges, others), subject="edges"),
            dynamic="False",
        )
    compiling.recompile("0/4", msgspec.structs.replace(shape(93, 95), subject="edges"), dynamic="False")
    (finding,) = compiling.findings()
    assert finding.count == 4
    assert "edges changed with it" in finding.cause


def test_the_first_version_for_another_object_is_no_finding() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    compiling.recompile("0/1", shape(4, 5), fresh=True)
    assert compiling.findings() == []


def test_a_class_that_a_function_makes_anew_is_a_finding_unless_more_than_the_class_differs() -> None:
    """Five folds, each with an encoder of build_encoder(): encoders of other sizes need a version each."""
    text = "___check_type_id(self, 17), type=<class 'folds.build_encoder.<locals>.Encoder'>"
    anew = Guard("type", "self", "Encoder", "Encoder", text)
    other = Guard("shape", "self.weight", "f32[4,4]", "f32[8,4]", "size mismatch", 0)
    for differs in ([anew], [anew, other]):
        compiling = Compiling()
        compiling.compile("0/0")
        for i in range(1, 5):
            compiling.recompile(f"0/{i}", *differs, fresh=True)
        found = compiling.findings()
        assert [(one.place.line, one.count) for one in found] == ([] if other in differs else [(10, 4)])
        assert all("build_encoder(), and each call of that makes it anew" in one.cause for one in found)


def test_a_number_and_the_bounds_that_the_code_asks_of_it_are_one_cause() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    made = compiling.story.line(12, "if width > 1:", func="forward")
    compiling.recompile("0/1", Guard("value", "width", "5", "9", "width == 5", stack=made))
    compiling.recompile("0/2", Guard("guard", text="width <= 1", stack=made))
    compiling.recompile("0/3", Guard("guard", text="height <= 1", stack=made))
    assert sorted(finding.count for finding in compiling.findings()) == [1, 2]


def test_a_new_object_in_each_step_is_a_finding() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    for i in range(1, 5):
        with compiling.story.step():
            compiling.recompile(f"0/{i}", shape(i, i + 1), fresh=True)
    (finding,) = compiling.findings()
    assert finding.count == 3


def test_an_optimizers_second_step_is_warm_up() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    code = compiling.story.line(100, "def step(self)", func="step", file="/v/site-packages/torch/optim/adam.py")
    state = Guard("length", "self.state[p]", "not empty", "0", "len(self.state[p]) != 0")
    compiling.recompile("0/1", state, code=code)
    assert compiling.findings() == []
    compiling.recompile("0/2", state, code=code)
    assert len(compiling.findings()) == 1


def test_compiling_is_what_the_live_view_shows() -> None:
    from xlaprof.events import Compiling as Begun

    compiling = Compiling()
    compiling.story.emit(Begun(t=compiling.story.now, ops=0, stack=compiling.call, trigger="dynamo"))
    assert compiling.story.report().activity.state == "compiling"
    compiling.compile("0/0")
    assert compiling.story.report().activity.state == "running"


def test_ranks_add_up() -> None:
    def rank(number: int) -> Run:
        compiling = Compiling()
        compiling.story.text("only here" * number)
        compiling.broke("0/0", 21)
        compiling.compile("0/0", restarted=10 * MS)
        compiling.recompile("0/1", shape(4, 5 + number))
        return compiling.story.run()

    report = (rank(0) + rank(1)).report()
    kinds = {finding.kind: finding for finding in report.findings}
    assert kinds["recompile"].count == 2
    assert kinds["recompile"].place.line == 40
    assert kinds["graph_break"].count == 2
    assert kinds["graph_break"].cost_s == pytest.approx(0.02)


def test_nothing_in_the_events_is_trusted() -> None:
    """Ids without a name, events in any order, twice or never: no crash, whatever the events say."""
    rng = random.Random(3)
    compiling = Compiling()
    compiling.compile("0/0")
    compiling.broke("0/0", 21)
    compiling.recompile("0/1", shape(4, 5))
    compiling.story.emit(DynamoLimit(t=0, compile="0/1", func=999, stack=999, value=-1, guard=Guard("odd", dim=7)))
    compiling.story.emit(Recompile(t=-5, compile="", func=998, guards=[Guard("shape", "x", "[", "f32[a,b]", dim=4)]))
    compiling.story.emit(Recompile(t=5, compile="0/1", func=998, guards=[]))
    compiling.story.emit(DynamoCompile(t=10**15, dur=0, compile="!", func=99, ops=0, restarted=10**18))
    compiling.story.emit(GraphBreak(t=0, reason="", compile="never"))
    events: list[Event] = list(compiling.story.events)
    for _ in range(20):
        rng.shuffle(events)
        Run().feed_all(events + rng.sample(events, 3)).report()


def test_the_first_compilation_of_a_graph_is_said_to_be_normal() -> None:
    compiling = Compiling()
    compiling.compile("0/0", 29_000)
    compiling.compile("0/0", 700, backward=True, ops=0)
    report = compiling.story.report()
    assert report.clean
    stat = report.torch_compile
    assert (stat.count, stat.graphs, stat.total_s) == (1, 1, pytest.approx(29.7))
    (charge,) = stat.charges
    assert (charge.what, charge.seconds) == ("first", pytest.approx(29.7))
    assert "first compilation of 1 graph: normal" in charge.why
    assert "inductor's cache" in charge.why
    assert "repeats a block" not in charge.why  # nothing shows that the model does


def test_a_compilation_that_failed_is_told_with_the_error_and_is_no_version() -> None:
    compiling = Compiling()
    compiling.compile("0/0", 2200)
    evaluation = compiling.story.line(52, "model(x)")
    guard = Guard("mode", "grad_mode", "True", "False")
    compiling.recompile("0/1", guard, ms=2300, stack=evaluation, ops=0, compiled=False, fail="InductorError")
    compiling.story.emit(End(t=compiling.story.now, error="InductorError"))
    report = compiling.story.report()
    assert report.clean
    charges = {charge.what: charge for charge in report.torch_compile.charges}
    assert {what: round(one.seconds, 6) for what, one in charges.items()} == {"first": 2.2, "failed": 2.3}
    assert charges["failed"].why.startswith("for 1 compilation that failed: forward, called at ")
    assert charges["failed"].why.endswith(":52 (InductorError, which ended the program).")
    assert not any(account.unexplained_s > 1e-6 for account in report.accounts if account.what == "torch.compile")


def test_of_all_the_compiling_no_more_is_said_to_be_cached_than_there_was() -> None:
    compiling = Compiling()
    compiling.compile("0/0", 1000, cached=True)
    compiling.recompile("0/1", shape(4, 5), ms=3000, cached=True)
    (first, _) = compiling.story.report().torch_compile.charges
    assert (first.what, first.seconds) == ("first", 1.0)
    assert "Of the 4.00 s in all 4.00 s went into graphs that inductor had in its cache" in first.why


def test_each_function_and_part_that_was_compiled_again_is_named() -> None:
    compiling = Compiling()
    behind, loss = compiling.story.line(21, "print(x)", func="forward"), compiling.story.text("loss")
    for size in range(4, 8):
        for frame, more in enumerate(({}, {"resumed": behind}, {"func": loss})):
            name = f"{frame}/{size - 4}"
            compiling.compile(name, **more) if size == 4 else compiling.recompile(name, shape(size - 1, size), **more)
    (finding,) = compiling.findings("recompile")
    assert finding.count == 9
    again = "forward, the part of forward behind line 21 and loss were compiled again 3 times each"
    assert again in finding.cause


def test_what_grows_is_advised_to_grow_outside_and_what_varies_or_is_passed_is_not() -> None:
    def advice(name: str, *lengths: int) -> str:
        compiling = Compiling()
        compiling.compile("0/0")
        for i, (old, new) in enumerate(pairwise(lengths), 1):
            compiling.recompile(f"0/{i}", Guard("length", name, str(old), str(new), f"len({name})"))
        (finding,) = compiling.findings()
        return finding.advice

    assert "Let self.log grow outside the compiled function" in advice("self.log", 0, 1, 2)
    assert "Keep self.log at one length" in advice("self.log", 3, 1, 2)
    assert "Keep parts at one length" in advice("parts", 2, 3, 4)


def test_every_second_of_compiling_is_charged_once() -> None:
    compiling = Compiling()
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.broke("0/0", 21)
    compiling.compile("0/0", 400, restarted=150 * MS)
    compiling.compile("1/0", 90, resumed=place)
    compiling.broke("0/1", 21)
    compiling.recompile("0/1", shape(4, 5), ms=300, restarted=100 * MS)
    compiling.recompile("0/2", Guard("mode", "grad_mode", "True", "False"), ms=50, stack=compiling.story.line(70))
    compiling.compile("7/3", 20)
    report = compiling.story.report()
    seconds = {charge.what: round(charge.seconds, 6) for charge in report.torch_compile.charges}
    assert seconds == {
        "first": 0.25,  # of 400 ms 150 ms were in vain
        "break": 0.34,  # tracing in vain, twice, and the graph behind the break
        "recompile": 0.2,  # of 300 ms 100 ms were in vain, because of the break
        "necessary": 0.05,
        "unexplained": 0.02,
    }
    assert sum(finding.cost_s for finding in report.findings) == pytest.approx(0.34 + 0.2)
    assert sum(seconds.values()) == pytest.approx(report.torch_compile.total_s)


def test_a_limit_that_many_objects_hit_counts_their_versions() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    for i in (1, 2, 3):
        compiling.recompile(f"0/{i}", Guard("value", "self.k", str(i), str(i + 1), "self.k == 1"), fresh=True)
    limit = DynamoLimit(t=compiling.story.now, compile="0/3", func=compiling.func, stack=compiling.call, value=3)
    compiling.story.emit(msgspec.structs.replace(limit, limit="accumulated_recompile_limit", code=compiling.code))
    (finding,) = compiling.findings()
    assert (finding.severity, finding.count) == ("high", 2)
    assert "compiled again twice" in finding.cause
    assert "accumulated_recompile_limit = 3 was hit" in finding.cause
    assert "That limit is torch._dynamo.config.accumulated_recompile_limit." in finding.advice
