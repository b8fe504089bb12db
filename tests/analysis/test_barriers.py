"""Loops without a barrier, named by their heads, and barriers where none should be."""

from __future__ import annotations

import pytest
from msgspec import structs
from story import Story

from xlaprof.analysis.whatif import barriers
from xlaprof.events import Change, Frame, Stack


def test_reads_that_run_all_that_was_before_are_a_growing_graph_and_a_read_in_every_step() -> None:
    story = Story()
    item = story.line(21, "losses.append(loss.item())", func="main", loops=(14,))
    step = story.line(19, "loss.backward()", func="main", loops=(14,))
    more = Change("operation", "barrier", "aten::ones_like", "the next operation", stack=step, added=15, against=1)
    for n in range(8):
        story.trace(5)
        story.compile(f"up to {n}", 200, item, more if n else None, trigger="read", ops=20 + 15 * n)
        story.execute(f"up to {n}", 5, item, "read")
        story.read(item)
    found = {finding.kind: finding for finding in story.findings()}
    assert set(found) == {"growing_graph", "transfer"}
    growing = found["growing_graph"]
    assert (growing.place.line, growing.count) == (14, 7)
    assert "from 20 to 125 operations (15 more each time)" in growing.cause
    assert [place.line for place in growing.also] == [21]


def test_what_is_read_of_a_growing_graph_in_the_end_is_its_cost_too() -> None:
    story = Story()
    barrier = story.line(9, "xr.sync()", "main", loops=(5,))
    done = story.line(21, "while not done.all():", "generate", outer=(40,), loops=(21,))
    result, other = story.line(41, "print(written.cpu())", "main"), story.line(43, "print(score.item())", "main")
    for _ in range(20):
        story.trace(5)
        story.barrier(barrier, 5, "train", trains=True)
    for n in range(6):
        story.trace(5)
        story.compile(f"up to {n}", 200, done, trigger="read", ops=20 + 15 * n)
        story.execute(f"up to {n}", 5, done, "read")
        story.read(done)
    story.compile("all", 700, result, trigger="read", ops=90)
    story.execute("all", 5, result, "read")
    story.read(result)
    story.barrier(barrier, 5, "train")
    story.compile("score", 300, other, trigger="read", ops=90)
    story.execute("score", 5, other, "read")
    story.read(other)
    (growing,) = story.findings("growing_graph")
    assert growing.cost_s == pytest.approx(5 * 0.2 + 0.7)
    assert "What is read of it in the end, at line 41, took 700 ms more." in growing.cause
    assert growing.rhythm == "5 times after the last step"


def test_a_barrier_in_the_model_is_told_there() -> None:
    story = Story()
    inner = story.line(30, "xm.mark_step()", func="Deep.forward", outer=(41,), loops=(28, 39))
    end = story.line(42, "xm.mark_step()", func="main", loops=(39,))
    for _ in range(12):
        for _ in range(4):
            story.trace(0.3)
            story.barrier(inner, 1, "layer", 50, ops=9, dispatch=0.4)
        story.barrier(end, 1, "sum", 50, ops=3, dispatch=0.4)
    story.finish()
    (finding,) = story.findings("excess_barriers")
    assert (finding.place.line, finding.count, finding.rhythm) == (30, 48, "4 times a step")
    assert "pieces of 9 operations" in finding.cause
    assert finding.gain_s >= 0


def test_a_barrier_in_a_hook_is_told_there_and_its_graphs_are_no_recompiles() -> None:
    story = Story()
    call = "loss = criterion(model(x), y)"
    hook = story.line(16, "xm.mark_step()", func="flush", outer=(25,), loops=(0, 22), call=call)
    end = story.line(28, "xm.mark_step()", func="main", loops=(22,))
    weight = story.line(12, "model = nn.Sequential(*layers).to(device)")
    change = Change("shape", "f32[12,12]", "f32[2,12]", "input of aten::t", made=weight, against=1)
    for _ in range(12):
        for layer in range(7):
            story.trace(0.3)
            last = layer == 6
            story.barrier(hook, 1, "head" if last else "layer", 50, change if last else None, ops=6, dispatch=0.4)
        story.barrier(end, 1, "update", 50, ops=30, dispatch=0.4)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line, finding.rhythm) == ("excess_barriers", 16, "7 times a step")
    assert "in flush, a hook that line 25 calls" in finding.cause


def test_a_barrier_that_several_calls_of_a_step_reach_cuts_it_as_several_barriers_do() -> None:
    story = Story()
    parts = [
        story.line(18, "xr.sync()", func="Watch.note", outer=(line, 52), loops=(0, 0, 50)) for line in (31, 33, 36)
    ]
    end = story.line(54, "xr.sync()", func="main", loops=(50,))
    for _ in range(12):
        for part in parts:
            story.trace(0.3)
            story.barrier(part, 1, f"part {part}", 60, ops=12, dispatch=0.4)
        story.barrier(end, 1, "rest", 60, ops=40, dispatch=0.4)
    story.finish()
    (finding,) = story.findings("excess_barriers")
    assert (finding.place.line, finding.count) == (18, 36)
    assert "Each step is cut into 4 graphs of 19 operations on average, by barriers at lines 18, 54" in finding.cause
    assert "Keep the barrier at the end of the step (line 54)" in finding.advice


def test_steps_are_those_of_the_barrier_after_the_loop_even_where_the_loop_comes_first() -> None:
    story = Story()
    inner = story.line(14, "torch_xla.sync()", loops=(12,))
    end = story.line(18, "torch_xla.sync()", loops=(8,))
    for _ in range(10):
        for number in range(5):
            story.trace(1)
            story.barrier(inner, 0.1, f"parameter {number}", 5, ops=6)
        story.trace(5)
        story.barrier(end, 2, "step", 50, ops=90)
    (steps,) = story.report().steps
    assert (steps.count, steps.median_s) == (10, pytest.approx(0.0112))


@pytest.mark.parametrize("ends", [True, False])
def test_a_barrier_for_each_parameter_is_told_once_and_the_step_ends_at_the_other(ends: bool) -> None:
    """``ends``: another barrier ends the step; else the first parameter's graph holds it."""
    story = Story()
    call = "average(model, slow)"
    inner = story.line(16, "torch_xla.sync()", func="average", outer=(29,), loops=(14, 22), call=call)
    end = story.line(28, "torch_xla.sync()", func="main", loops=(22,))
    weight = story.line(12, "model = Model().to(device)")
    rank = Change("shape", "f32[32,24]", "f32[32]", "input of aten::mul", made=weight, against=1)
    for _ in range(20):
        story.trace(2)
        if ends:
            story.barrier(end, 5, "step", ops=90)
        for number in range(5):
            graph, ops = ("whole", 94) if not (ends or number) else (f"parameter {number}", 4)
            story.barrier(inner, 0.02, graph, 50, rank if number else None, ops=ops)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line, finding.count) == ("excess_barriers", 16, 100)
    assert [place.line for place in finding.also] == [14]
    assert finding.rhythm == "5 times a step"
    # and what the small graphs take to compile beyond their operations' part of the large one; the last one may stay
    compiling = 4 * (0.05 - 4 * 0.5 / 90) if ends else 3 * (0.05 - 4 * 0.05 / 94)
    assert finding.cost_s == pytest.approx(80 * 0.0002 + compiling)
    assert "and compiling them apart takes" in finding.cause
    bills = [one for one in story.report().accounts if one.what == "compile"]
    assert bills[0].explained_s == pytest.approx(compiling)
    assert "Call it once, after the loop at line 14" in finding.advice
    if ends:
        assert story.report().steps[0].count == 20


@pytest.mark.parametrize(("dispatch", "found"), [(0.1, False), (3, True)])
def test_barriers_of_large_graphs_in_each_step_are_judged_by_what_they_take_the_host(
    dispatch: float, found: bool
) -> None:
    story = Story()
    lines = [story.line(n, "torch_xla.sync()", func="main", loops=(50,)) for n in (56, 61, 64)]
    for _ in range(20):
        for n, line in enumerate(lines):
            story.trace(4)
            story.barrier(line, 1, f"part {n}", 800, ops=400 + n, dispatch=dispatch)
    story.finish()
    report = story.report()
    assert [one.kind for one in report.findings] == ["excess_barriers"] * found
    (idle,) = (one for one in report.accounts if one.what == "idle")
    said = "3 barriers in a step (train.py:56, train.py:61, train.py:64) take the host 300 us of it: normal"
    assert (said in idle.text) is not found


def test_visits_in_which_the_host_was_held_up_are_not_promised_back() -> None:
    """Some find the processors busy with what the device computes: it would be in the way of the next call, too."""
    story = Story()
    inner = story.line(36, "xm.mark_step()", func="decay", outer=(48,), loops=(35, 41), call="decay(buffers)")
    end = story.line(47, "xm.mark_step()", func="main", loops=(41,))
    for step in range(30):
        story.trace(2)
        story.barrier(end, 1, "step", ops=80, dispatch=1)
        for number in range(4):
            story.barrier(inner, 0.02, f"buffer {number}", 5, ops=3, dispatch=15 if step % 5 == number else 0.4)
    (finding,) = story.findings()
    assert finding.gain_s <= finding.cost_s
    assert finding.gain_per_step_s == pytest.approx(3 * 0.0004, rel=0.1)
    (idle,) = (one for one in story.report().accounts if one.what == "idle")
    assert finding.id in idle.findings
    assert idle.explained_s > 0.03


@pytest.mark.parametrize(
    ("graphs", "ops"),
    [
        (("sum begins", "batch", "batch", "batch", "last batch"), 12),  # of an evaluation
        (("short", "middle", "long", "longest", "longer"), 60),  # batches, sorted by their lengths
    ],
)
def test_a_barrier_for_each_batch_is_as_it_should_be(graphs: tuple[str, ...], ops: int) -> None:
    story = Story()
    inner = story.line(16, "torch_xla.sync()", func="evaluate", outer=(29,), loops=(14, 22), call="evaluate(model)")
    end = story.line(28, "torch_xla.sync()", func="main", loops=(22,))
    for _ in range(20):
        story.trace(2)
        story.barrier(end, 5, "step", ops=90)
        for graph in graphs:
            story.barrier(inner, 1, graph, 50, ops=ops)
    story.finish()
    assert story.findings() == []


def test_a_helper_that_the_loop_calls_by_its_name_is_no_hook() -> None:
    story = Story()
    call = "loss = train_critic(x)"
    critic = story.line(16, "xm.mark_step()", func="train_critic", outer=(25,), loops=(0, 22), call=call)
    end = story.line(28, "xm.mark_step()", func="main", loops=(22,))
    for n in range(24):
        story.trace(0.3)
        story.barrier(critic, 5, "critic", 50, ops=40)
        if n % 3 == 2:
            story.barrier(end, 5, "generator", 50, ops=40)
    story.finish()
    assert story.findings("excess_barriers") == []


def epochs(steps: int, function: str) -> Story:
    """A library calls a function with a barrier in each training step, and another after each of 8 batches of an
    evaluation, both in its loop over hooks."""
    story = Story()
    run = ("/venv/lib/python3.11/site-packages/somelib/loops.py", 151, "EpochLoop.run", "self.advance()", 150)
    call = ("/venv/lib/python3.11/site-packages/somelib/call.py", 227, "call_hooks", "hook(trainer)", 224)
    evaluate = ("/venv/lib/python3.11/site-packages/somelib/evaluation.py", 131, "Loop.run", "self.step()", 129)
    step = (run[0], 160, *run[2:])
    where, main = story.text("train.py"), story.text("<module>")
    stacks = []
    for number, hook, below in ((74, function, (call, step)), (80, "after_batch", (call, evaluate, run))):
        lines = [Frame(where, number, story.text(hook), story.text("xm.mark_step()"))]
        lines.append(Frame(where, 119, main, story.text("trainer.fit(model)")))
        head = story.text("while not done:")
        library = [Frame(*map(story.text, one[:1]), one[1], story.text(one[2]), 0, one[4], head) for one in below]
        stacks.append(1_000 + number)
        story.put(Stack(id=stacks[-1], frames=lines, library=library, depths=[1] * len(library)))
    train, validate = stacks
    for _ in range(6):
        for _ in range(steps):
            story.trace(2)
            story.barrier(train, 5, "step", compile=900, ops=130, dispatch=20)
        for _ in range(8):
            story.trace(1)
            story.barrier(validate, 2, "score", compile=300, ops=22, dispatch=2)
    story.finish()
    return story


@pytest.mark.parametrize(("steps", "function"), [(40, "after_step"), (40, "Net.forward"), (8, "after_step")])
def test_the_only_barrier_of_a_step_stays_where_an_evaluation_has_one_of_its_own(steps: int, function: str) -> None:
    """Without it all the steps of an epoch would be one graph, which the first batch of the evaluation ends."""
    story = epochs(steps, function)
    run = story.run().settled()
    assert story.findings("excess_barriers") == []
    assert not barriers.without(run, (1_074,)).ends_turns
    assert not barriers.without(run, (1_074,)).pays(saved_s=100)


def micro_batches(with_forward: bool, ops: int = 50) -> Story:
    """An optimizer whose step is in every fourth graph; ``with_forward``: a whole step of another model is."""
    story = Story()
    barrier, step = story.line(28, "xm.mark_step()"), story.line(36, "optimizer.step()")
    came = Change(
        "operation", "barrier", "aten::mul_", "the next operation", stack=step, added=40, against=1,
        role="" if with_forward else "state",
    )  # fmt: skip
    later = Change(
        "operation",
        "aten::zeros_like",
        "aten::mul_",
        "the next operation",
        stack=step,
        removed=4,
        against=2,
        role="state",
    )
    for n in range(24):
        graph = "micro" if n % 4 != 3 else "first" if n == 3 else "update"
        story.trace(ops * 0.006)
        story.barrier(barrier, 5, graph, 50, ops=ops, change={"first": came, "update": later}.get(graph))
    story.finish()
    return story


def test_an_optimizer_in_every_fourth_graph_makes_the_others_micro_batches() -> None:
    (finding,) = micro_batches(with_forward=False).findings("excess_barriers")
    assert finding.cost_s == pytest.approx(18 * 0.0002)  # what was compiled at the barrier is not in it
    assert (finding.place.line, finding.count) == (28, 18)
    assert micro_batches(with_forward=False, ops=900).findings("excess_barriers") == [], "a twenty-seventh of the steps"


def test_a_step_of_another_model_in_every_fourth_graph_makes_no_micro_batches() -> None:
    assert micro_batches(with_forward=True).findings("excess_barriers") == []


def test_micro_batches_are_known_by_what_they_lack_too_where_the_first_step_updates() -> None:
    """``if step % 4 == 0: opt.step()``: the first graph has the optimizer's step, and the second lacks it."""
    story = Story()
    barrier, step = story.line(28, "xm.mark_step()"), story.line(26, "opt.step()")
    left_out = Change("operation", "aten::mul_", "barrier", "the end", barrier, step, removed=40, against=1)
    later = Change(
        "operation", "aten::zeros_like", "aten::mul_", "the next operation", step, step, role="state", removed=4,
        against=1,
    )  # fmt: skip
    for n in range(24):
        graph = "micro" if n % 4 else "first" if n == 0 else "update"
        story.trace(0.3)
        story.barrier(barrier, 5, graph, 50, change={"micro": left_out, "update": later}.get(graph))
    story.finish()
    (finding,) = story.findings("excess_barriers")
    assert (finding.place.line, finding.count) == (28, 18)
    assert "line 26" in finding.advice


def test_two_models_that_take_turns_have_an_optimizer_each_and_no_micro_batches() -> None:
    """A GAN: each player has a graph, and its optimizer makes its state in the first of them."""
    story = Story()
    barrier, step = story.line(32, "xm.mark_step()"), story.line(30, "opts[who].step()")
    turn = Change(
        "operation", "aten::addmm", "aten::addmm", "the next operation", stack=story.line(27, "loss = bce(D(fake))"),
        expected=story.line(23, "loss = bce(D(real))"), added=7, removed=29, against=1,
    )  # fmt: skip
    for n in range(20):
        story.trace(0.3)
        graph, against = f"{'GD'[n % 2]}{min(n // 2, 1)}", 1 + n % 2
        made = Change("operation", "aten::zeros_like", "aten::lerp_", "the next operation", step, step, role="state")
        change = turn if n == 1 else structs.replace(made, removed=8, against=against) if n in (2, 3) else None
        story.barrier(barrier, 5, graph, 50, change=change)
    story.finish()
    assert story.findings("excess_barriers") == []


def test_momentum_that_was_made_in_the_first_step_is_no_sign_of_micro_batches_in_a_run_of_many_shapes() -> None:
    story = Story()
    barrier, step = story.line(32, "torch_xla.sync()"), story.line(31, "opt.step()")
    images = story.line(27, "images = images.to(device)")
    made = Change(
        "operation", "aten::clone", "aten::mul_", "the next operation", step, step, role="optimizer", added=12,
        removed=6, against=1,
    )  # fmt: skip
    for n in range(15):
        size = 8 + 4 * (n // 5)
        graph = "first" if not n else f"{size}"
        larger = Change(
            "shape", f"f32[6,{size - 4}]", f"f32[6,{size}]", "input", images, made=images, against=n // 5 + 1
        )
        story.trace(0.3)
        story.barrier(barrier, 5, graph, 50, change=made if n == 1 else larger if n in (5, 10) else None)
    story.finish()
    assert story.findings("excess_barriers") == []


def test_a_barrier_after_each_step_of_a_sampler_is_as_it_should_be() -> None:
    story = Story()
    inner = story.line(30, "xm.mark_step()", func="sample", outer=(41,), loops=(28, 39))
    for _ in range(3):
        for _ in range(20):
            story.trace(0.3)
            story.barrier(inner, 10, "step", 50, ops=90)
    story.finish()
    assert story.findings("excess_barriers") == []


def test_a_graph_of_ever_more_inputs_is_a_recompile_and_nothing_else() -> None:
    story = Story()
    barrier, line = story.line(22, "torch_xla.sync()"), story.line(21, "smooth = torch.stack(history).mean()")
    for n in range(8):
        with story.step():
            change = Change("inputs", f"{n} inputs", f"{n + 1} inputs", "the tensors that are stacked", stack=line)
            story.barrier(barrier, 5, f"{n}", 100, ops=19 + n, change=change if n else None)
    assert {finding.kind for finding in story.findings()} == {"recompile"}


def test_a_graph_that_grows_is_told_once_at_the_line_that_records_more_each_time() -> None:
    story = Story()
    barrier, line = story.line(35, "xm.mark_step()"), story.line(32, "loss.backward(retain_graph=True)")
    for n in range(9):
        with story.step():
            change = Change(
                "operation", "aten::t", "aten::mm", "the next operation", stack=line, role="backward", added=22
            )
            story.barrier(barrier, 5, f"graph {n}", 100, ops=46 + 22 * n, change=change if n else None)
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line) == ("growing_graph", 32)
    assert [place.line for place in finding.also] == [35]
    assert "ends at line 35 grew 8 times in a row" in finding.cause


@pytest.mark.parametrize("loop", [0, 16])
def test_a_graph_that_is_run_at_exit_belongs_to_the_line_that_recorded_it(loop: int) -> None:
    story = Story()
    line = story.line(18, "w = w - lr * grad", func="main", loops=(loop,))
    story.trace(30)
    story.compile("all", 500, exit := story.line(0, func="", file="at exit"), trigger="read", ops=900)
    story.barrier(exit, 40, graph="all", ops=900, trigger="read", loops=30, loop=line, loop_ops=30)
    (finding,) = story.findings("missing_barrier")
    assert (finding.place.file, finding.place.line) == ("train.py", loop or 18)
    assert "compiled and run only at exit (500 ms to compile, of which 91 ms remain for one turn)" in finding.cause


def parts_of_a_step(sizes: tuple[int, ...], updates: tuple[int, ...]) -> Story:
    """Three barriers in each step: the batch of the first, and what the second updates, vary each by themselves."""
    story = Story()
    lines = [story.line(number, "xm.mark_step()", loops=(8,)) for number in (12, 16, 20)]
    for n in range(60):
        parts = f"batch {sizes[n % len(sizes)]}", f"update {updates[n % len(updates)]}", "metrics"
        with story.step():
            story.trace(1)
            for line, graph in zip(lines, parts, strict=True):
                story.barrier(line, 1, graph, compile=80, ops=20)
    story.finish()
    return story


def test_barriers_that_keep_varying_parts_apart_are_no_mistake() -> None:
    """4 batch sizes and 3 sets of parameters: 8 graphs apart, 12 as one."""
    assert parts_of_a_step((8, 16, 24, 32), (1, 2, 3)).findings("excess_barriers") == []
    (finding,) = parts_of_a_step((8,), (1,)).findings("excess_barriers")
    assert "barriers at lines 12, 16, 20" in finding.cause


def test_a_run_is_played_again_without_some_of_its_barriers() -> None:
    story = parts_of_a_step((8, 16, 24, 32), (1, 2, 3))
    run = story.run().settled()
    first, second = story.line(12, "xm.mark_step()", loops=(8,)), story.line(16, "xm.mark_step()", loops=(8,))
    apart = barriers.without(run, ())
    assert apart.now == apart.then == (8, pytest.approx(0.64))
    both = barriers.without(run, (first, second))
    assert both.then == (12, pytest.approx(12 * 0.24))
    assert not both.pays(saved_s=2)
    alone = barriers.without(run, (second,))  # what is updated and the metrics: 3 graphs beside the 4 of the batches
    assert alone.then == (7, pytest.approx(4 * 0.08 + 3 * 0.16))
    assert (alone.pays(saved_s=0.1), alone.pays(saved_s=0.2)) == (False, True)
    everything = barriers.without(run, tuple(run.sites))
    assert everything.then is None
    assert not everything.pays(saved_s=100)


def test_what_an_optimizer_makes_once_is_warm_up_with_and_without_a_barrier() -> None:
    story = Story()
    middle, end = story.line(12, "xm.mark_step()"), story.line(16, "xm.mark_step()")
    for n in range(6):
        story.barrier(middle, 1, "gradients", compile=80)
        story.barrier(end, 1, "update" if n else "first update", compile=50)
    story.finish()
    run = story.run().settled()
    assert barriers.without(run, (middle,)) == ((2, pytest.approx(0.13)), (1, pytest.approx(0.13)), True)
    first, *later = barriers.play(run.cuts, lambda cut: cut[0] == middle)
    assert (first[0], len(later), len(set(later))) == (end, 5, 1)


def test_reads_of_one_turn_that_grow_by_each_other_lack_no_barrier() -> None:
    """Anomaly detection reads every gradient of a backward pass; a barrier ends each turn all the same."""
    story = Story()
    read, barrier = story.line(31, "loss.backward()", loops=(28,)), story.line(33, "xr.sync()", loops=(28,))
    for _ in range(20):
        with story.step():
            story.trace(2)
            for gradient in range(12):
                ops = 50 + 10 * gradient
                story.compile(f"read {gradient}", 300, read, trigger="read", ops=ops, again=ops)
                story.execute(f"read {gradient}", 2, read, "read")
                story.read(read)
            story.barrier(barrier, 5, "step", compile=100)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.cost_s > 3.6) == ("transfer", True)
