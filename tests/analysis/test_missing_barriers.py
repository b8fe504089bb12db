"""Loops without a barrier: which are found, with which turns, and which loops belong into one graph."""

from __future__ import annotations

from typing import Any

import pytest
from story import Story

from xlaprof.events import Change


def unrolled(
    story: Story,
    line: int,
    *,
    shared: bool = True,
    loops: int = 24,
    ops: int = 45,
    compile_ms: int = 2400,
    learns: bool = False,
) -> Story:
    barrier = story.line(33, "xm.mark_step()", func="main", loops=(28,))
    loop = {"loops": loops, "loop": line, "loop_ops": ops, "loop_shared": shared, "loop_learns": learns}
    for _ in range(6):
        story.trace(30)
        story.barrier(barrier, 40, compile=compile_ms, ops=loops * ops, **loop)
    return story


def attack(story: Story, func: str = "attack") -> int:
    """A line in a loop of a function that is called in the barrier's loop."""
    return story.line(18, "loss = F.cross_entropy(model(adv), y)", func=func, outer=(31,), loops=(16, 28))


def test_a_loop_inside_a_step_is_told_at_its_head_with_its_turns() -> None:
    story = Story()
    (finding,) = unrolled(story, attack(story)).findings()
    assert (finding.kind, finding.place.line, finding.place.func) == ("missing_barrier", 16, "attack")
    assert finding.place.code == "for turn in turns:"
    assert finding.count == 24
    assert "24 turns became one graph of 1,080 operations, about 45 for each" in finding.cause
    assert "by the barrier at line 33" in finding.cause
    assert {place.line for place in finding.also} == {33, 18}
    assert finding.remedy.startswith("for turn in turns:\n")


def test_one_loop_that_two_lines_call_is_one_finding_with_the_graphs_of_both() -> None:
    story = Story()
    loop = {"loops": 24, "loop": attack(story), "loop_ops": 45, "loop_shared": True}
    for line, times in ((50, 1), (33, 5)):  # once before the epochs, then in each of them
        cut = story.line(line, "xm.mark_step()", func="main", loops=(28,))
        for _ in range(times):
            story.trace(30)
            story.barrier(cut, 40, f"cut at {line}", compile=2400, ops=24 * 45, **loop)
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line) == ("missing_barrier", 16)
    assert "by the barrier at line 50 (and at line 33)" in finding.cause
    assert "4.80 s to compile 2 such graphs" in finding.cause
    assert finding.cost_s > 2.4  # a turn of each remains


@pytest.mark.parametrize(
    ("func", "numbers"),
    [
        ("attack", {"shared": False}),  # layers, each with its own weights
        ("Decoder.forward", {}),  # over a sequence
        ("attack", {"loops": 16, "learns": True}),  # micro-batches
        ("ema", {"ops": 2}),  # over parameters
    ],
)
def test_other_loops_belong_into_one_graph(func: str, numbers: dict[str, Any]) -> None:
    story = Story()
    assert unrolled(story, attack(story, func), **numbers).findings() == []


def epochs_of_five_steps(barrier_loop: int, compile_ms: int = 3000) -> Story:
    """Five training steps in each graph: of a loop of its own, or of the barrier's loop, at every fifth turn."""
    story = Story()
    step = story.line(63, "optimizer.step()", func="run_epoch", outer=(86,), loops=(58, 84))
    barrier = story.line(66, "torch_xla.sync()", func="run_epoch", outer=(86,), loops=(barrier_loop, 84))
    summary = story.line(67, "return total.item()", func="run_epoch", outer=(86,), loops=(0, 84))
    for _ in range(8):
        story.trace(30)
        story.barrier(
            barrier, 40, compile=compile_ms, ops=800, loops=5, loop=step, loop_ops=150, loop_shared=True, turns=(5, 0),
            loop_trains=True,
        )  # fmt: skip
        story.read(summary)
    story.finish()
    return story


def test_a_few_training_steps_in_one_graph_lack_a_barrier_and_what_is_read_after_them_is_read_once_an_epoch() -> None:
    (finding,) = epochs_of_five_steps(0).findings()
    assert (finding.kind, finding.place.line, finding.count) == ("missing_barrier", 58, 5)
    assert "5 turns became one graph of 800 operations, about 150 for each" in finding.cause
    assert finding.cost_s == pytest.approx(1.5)  # what a graph of a fifth of the operations takes to compile remains


@pytest.mark.parametrize("inside", [False, True])
def test_what_waits_for_the_graph_of_all_turns_is_a_part_of_the_missing_barrier(inside: bool) -> None:
    """Listeners end a season: one ends the graph, one reads the score. A read in the turns has a cost of its own."""
    story = Story()
    step = story.line(41, "optimizer.step()", func="season", loops=(38,))
    barrier = story.line(12, "torch_xla.sync()", func="Flush.on_end", outer=(45,), loops=(0, 44))
    score = story.line(19, "self.scores.append(score.item())", func="Score.on_end", outer=(45,), loops=(0, 44))
    if inside:
        score = story.line(40, "scores.append(score.item())", func="season", loops=(38,))
    for _ in range(9):
        story.trace(20)
        story.barrier(
            barrier, 60, compile=2000, ops=900, loops=6, loop=step, loop_ops=140, loop_shared=True, turns=(6,),
            loop_trains=True,
        )  # fmt: skip
        for _ in range(6 if inside else 1):
            story.read(score)
    story.finish()
    found = {finding.kind: finding for finding in story.findings()}
    missing = found["missing_barrier"]
    assert [part.place.line for part in missing.parts] == [] if inside else [19]
    assert ("transfer" in found) is inside
    assert missing.cost_s - sum(part.cost_s for part in missing.parts) == pytest.approx(1.057, rel=0.01)
    assert inside or missing.parts[0].cost_s > 0.1


def test_a_barrier_at_every_fifth_turn_of_its_loop_is_meant_so_unless_compiling_five_turns_is_felt() -> None:
    assert epochs_of_five_steps(58, compile_ms=10).findings("missing_barrier") == []
    (finding,) = epochs_of_five_steps(58).findings("missing_barrier")
    assert (finding.place.line, finding.count) == (58, 5)


def test_the_loop_of_the_barrier_itself_is_none() -> None:
    story = Story()
    line = story.line(30, "loss.backward()", func="main", loops=(28,))
    assert unrolled(story, line).findings() == []


def test_where_no_loop_is_known_the_function_is_told() -> None:
    story = Story()
    read = story.line(44, "picture = x.cpu()", func="main")
    line = story.line(19, "h = torch.relu(self.inp(x))", func="forward", outer=(42,))
    story.trace(100)
    story.compile("unrolled", 2000, read, trigger="read", ops=600, loops=50, loop=line, loop_ops=12)
    story.execute("unrolled", 50, read, "read")
    story.read(read, "aten::_to_copy")
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line, finding.confidence) == ("missing_barrier", 42, "medium")


def test_a_score_whose_draws_repeat_in_each_of_its_batches_is_one_graph_though_its_class_is_called() -> None:
    """8 batches of 16 draws each, of a class's own ``__call__``: the line repeats 16 times in a row, 128 in all."""
    story = Story()
    barrier = story.line(81, "xm.mark_step()", "fit", outer=(95,), loops=(73, 93))
    read = story.line(68, "return torch.cat(scores).mean().item()", "Estimator.__call__", outer=(97,), loops=(0, 93))
    line = story.line(37, "return loss(self.dec(z), x)", "VAE.likelihood", outer=(65, 97), loops=(0, 62, 93))
    loop = {"loops": 16, "loop": line, "loop_ops": 33, "loop_shared": True, "turns": (0, 128, 1)}
    for n in range(2):
        for _ in range(96):
            story.trace(5)
            story.barrier(barrier, 5, "step", trains=True)
        story.trace(50)
        if n == 0:
            story.compile("score", 30_000, read, trigger="read", ops=4_186, **loop)  # type: ignore[arg-type]
        story.execute("score", 5, read, "read")
        story.read(read)
    (finding,) = story.findings("missing_barrier")
    assert (finding.place.line, finding.count) == (62, 128)
    assert "128 turns became one graph of 4,186 operations, about 32 for each" in finding.cause


def test_turns_that_are_compiled_once_more_because_their_result_is_held_belong_to_the_missing_barrier() -> None:
    story = Story()
    barrier = story.line(51, "for x, y in loader:", "train", outer=(96,), loops=(51, 95))
    scored = story.line(100, "best = score.topk(8).tolist()", "main", loops=(95,))
    line = story.line(67, "mean = mean + model(x)", "uncertainty", outer=(99,), loops=(65, 95))
    loop = {"loops": 25, "loop": line, "loop_ops": 25, "loop_shared": True}
    for n in range(3):
        for _ in range(10):
            story.trace(5)
            story.barrier(barrier, 5, "step", trains=True)
        story.trace(5)
        story.compile(f"score {n}", 4000, scored, trigger="read", ops=634, again=558, **loop)  # type: ignore[arg-type]
        story.execute(f"score {n}", 5, scored, "read")
        story.read(scored)
        story.barrier(barrier, 5, f"score {n} once more", compile=3000, ops=633)
    (finding,) = story.findings("missing_barrier")
    assert "9.00 s for graphs compiled again because of it" in finding.cause
    assert finding.cost_s > 9 + 0.7 * 12


def test_the_unrolled_loop_is_that_of_the_largest_graph_whatever_small_reads_it_holds() -> None:
    story = Story()
    turn, small, picture = story.line(12, "x = net(x)"), story.line(14, "k = i.item()"), story.line(20, "x.cpu()")
    for image in range(2):
        for number in range(20):
            story.trace(5)
            story.barrier(
                small,
                device=0.1,
                graph="position",
                compile=5,
                ops=3,
                trigger="read",
                loops=number + 21 * image,
                loop=turn,
            )
            story.read(small)
        story.barrier(picture, device=100, graph="picture", compile=4000, ops=5000, trigger="read", loops=20, loop=turn)
        story.read(picture)
    (finding,) = story.findings("missing_barrier")
    assert "20 turns became one graph of 5,000 operations" in finding.cause
    assert finding.place.line == 12


def evaluation(turns: tuple[int, ...], reader: int) -> Story:
    """An evaluation without a barrier, whose model repeats a line 80 times; ``reader``: the loop that reads."""
    story = Story()
    read = story.line(44, "print(total.item())", func="main", loops=(reader,))
    line = story.line(
        12, "h = torch.tanh(self.cell(h))", func="forward", outer=(41,), loops=(11, 40), call="total += model(x).sum()"
    )
    story.trace(20)
    story.compile("unrolled", 900, read, None, "read", 600, loops=80, loop=line, loop_ops=7, turns=list(turns))
    story.execute("unrolled", 30, read, "read")
    story.read(read)
    story.finish()
    return story


def test_a_loop_turns_as_often_as_its_own_lines_not_as_those_of_the_model_that_it_calls() -> None:
    (finding,) = evaluation((4, 20), reader=0).findings()
    assert (finding.kind, finding.place.line, finding.count) == ("missing_barrier", 40, 20)
    assert "20 turns became one graph of 600 operations, about 30 for each" in finding.cause


def test_few_turns_over_a_long_sequence_and_a_loop_that_reads_in_each_turn_lack_no_barrier() -> None:
    assert evaluation((20, 4), reader=0).findings("missing_barrier") == []
    assert evaluation((80, 1), reader=0).findings("missing_barrier") == []
    assert evaluation((4, 20), reader=40).findings("missing_barrier") == []


@pytest.mark.parametrize(
    ("loops", "compile_ms", "learns", "found"),
    [
        (12, 3000, False, True),  # a rollout: eleven twelfths of 3 s
        (12, 20, False, True),  # the same, a sixteenth of the run
        (12, 10, False, False),  # nobody minds
        (12, 3000, True, False),  # micro-batches, which belong into one graph
        (25, 100, False, True),
    ],
)
def test_a_few_turns_lack_a_barrier_where_their_graph_takes_much_of_the_run_to_compile(
    loops: int, compile_ms: int, learns: bool, found: bool
) -> None:
    story = Story()
    unrolled(story, attack(story), loops=loops, compile_ms=compile_ms, learns=learns)
    assert [one.place.line for one in story.findings("missing_barrier")] == [16] * found


def test_what_a_shrinking_batch_has_compiled_in_the_turns_is_its_own_cause_and_no_barrier_spares_it() -> None:
    """Routes are searched for those travellers who have not arrived: fewer in each turn, whose moves are read."""
    story = Story()
    line = story.line(18, "logits = net(places.to(device))", func="search", outer=(31,), loops=(16, 28))
    move = story.line(17, "places = places.to(device)", func="search", outer=(31,), loops=(16, 28))
    read = story.line(20, "moves = logits.argmax(1).cpu()", func="search", outer=(31,), loops=(16, 28))
    for season in range(2):
        for left in (13, 11, 8, 7, 5, 3, 2):
            change = Change("shape", f"f32[{left + 1},6]", f"f32[{left},6]", "self", made=move, moved=True, against=1)
            story.compile(f"{left}", 1500, read, None if left == 13 else change, "read", ops=30, again=20)
            story.execute(f"{left}", 1, read, "read")
            story.read(read, "aten::_to_copy")
        if not season:
            unrolled(story, line)
    found = {one.kind: one for one in story.findings() if one.kind in ("missing_barrier", "recompile")}
    assert found["recompile"].cost_s == pytest.approx(4 * 1.5)
    assert sum(one.cost_s for one in found.values()) < 2.4 + 7 * 1.5, "no second is told twice"


@pytest.mark.parametrize("pending", [18, 45])
def test_turns_that_reads_have_run_already_are_in_no_graph(pending: int) -> None:
    """A tune is drawn note by note, and each is read; the training step behind it has a graph of 432 operations, or all
    turns in it: 24 of them had 45 operations each."""
    story = Story()
    barrier = story.line(33, "torch_xla.sync()", func="main", loops=(28,))
    note = story.line(18, "note = head(state)", func="draw", outer=(31,), loops=(16, 28))
    for _ in range(6):
        story.trace(30)
        loop = {"loops": 24, "loop": note, "loop_ops": 45, "loop_shared": True}
        story.barrier(barrier, 40, compile=2400, ops=24 * pending, **loop)
    assert len(story.findings("missing_barrier")) == (pending == 45)


@pytest.mark.parametrize("selects", [False, True])
def test_turns_with_sizes_that_values_decide_get_a_barrier_once_they_are_masked(selects: bool) -> None:
    """Each turn takes the weights of one district: how many there are, the host reads."""
    story = Story()
    line = story.line(18, "taken = weights[district == turn]", func="rates", outer=(31,), loops=(16, 28))
    for _ in range(24 * selects):
        story.read(line, "aten::index")
    (finding,) = (one for one in unrolled(story, line).findings() if one.kind == "missing_barrier")
    assert ("one small graph is then compiled once" in finding.advice) is not selects
    assert ("once all turns have the same sizes: values decide those of train.py:18" in finding.advice) is selects
