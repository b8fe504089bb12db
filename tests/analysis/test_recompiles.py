"""Which compiles are too many, how they are grouped, and what is said of each cause."""

from __future__ import annotations

import msgspec
import pytest
from story import Story

from xlaprof.events import Change


def sizes(lengths: list[int], axis: int = 1) -> Story:
    """Batches of these sizes, one dimension of which changes."""
    story = Story()
    barrier, move = story.line(40, "xr.sync()"), story.line(35, "ids = ids.to(device)")
    seen: dict[int, int] = {}
    before = lengths[0]
    for n in lengths:
        old, new = (f"s64[4,{x}]" if axis else f"s64[{x},4]" for x in (before, n))
        change = Change(
            "shape", old, new, "input of aten::embedding", made=move, moved=True, against=seen.get(before, 0)
        )
        with story.step():
            story.trace(1)
            story.barrier(barrier, 8, f"length {n}", change=change if seen and n not in seen else None)
            story.spend(8)
        seen.setdefault(n, len(seen) + 1)
        before = n
    story.finish()
    return story


def test_every_size_is_told_with_its_count_at_the_line_that_brought_the_tensor() -> None:
    (finding,) = sizes([12, 17, 12, 9, 12, 17]).findings("recompile")
    assert (finding.place.line, finding.count, finding.confidence) == (35, 2, "high")
    assert finding.values == (("12", 3), ("17", 2), ("9", 1))
    assert "ids (brought to the device at train.py:35)" in finding.cause
    assert "(dimension 1)" in finding.cause
    assert finding.buckets[0].edges == (17,)
    assert "torch.nn.functional.pad(ids, (0, size - ids.shape[1]))" in finding.remedy


def test_a_few_sizes_that_come_back_often_are_padding_on_purpose() -> None:
    for few in ([16, 8, 32], [10, 30, 20], [33, 65, 34], [24, 48]):
        shuffled = [*few, *few[::-1]] * 4
        assert sizes(shuffled).findings("recompile") == [], few
    assert sizes([10, 35, 20, 35, 10, 20, 35]).findings("recompile"), "they may have come back by chance"
    rising = [size for size in range(10, 20) for _ in range(2)]
    (finding,) = sizes([10, 11, *rising, 10, 11, 12]).findings("recompile")
    assert finding.count == 9  # new sizes go on coming


def test_a_prompt_before_its_tokens_is_no_mistake() -> None:
    assert sizes(([16] + [1] * 7) * 4).findings("recompile") == []
    assert sizes(([1] + [16] * 7) * 4).findings("recompile"), "a smaller one at regular intervals is what was left over"


def test_a_last_batch_is_one_even_where_its_size_is_a_round_one() -> None:
    (finding,) = sizes([32, 32, 32, 8, 32, 32, 32, 8], axis=0).findings("recompile")
    assert "drop_last=True" in finding.advice


def test_two_batch_sizes_that_were_warmed_up_are_padding_too() -> None:
    assert sizes([8, 16, 8, 16, 16, 8, 8, 16], axis=0).findings("recompile") == []


def test_a_size_for_each_of_a_few_stages_is_worth_its_compile() -> None:
    assert sizes([10] * 20 + [13] * 20, axis=0).findings("recompile") == []
    assert sizes([10] * 30 + [13] * 30 + [17] * 30).findings("recompile") == []
    for lengths in (
        [10] * 20 + [13] * 19,  # or else it is the last batches'
        [10] * 5 + [13] * 40,
        [n for size in (10, 13, 17, 19) for n in [size] * 20],  # the more there are, the longer each has to run
    ):
        assert sizes(lengths).findings("recompile"), lengths


def warmed_up(advance: list[str], served: list[str]) -> Story:
    """Graphs made in advance at a barrier of their own, and those of the requests that follow."""
    story = Story()
    warm, serve = story.line(19, "torch_xla.sync()", outer=(24,)), story.line(19, "torch_xla.sync()", outer=(28,))
    move = story.line(18, "x = x.to(device)")
    seen: dict[str, int] = {}
    for barrier, shapes in ((warm, advance), (serve, served)):
        for shape in shapes:
            change = Change("shape", advance[0], shape, "input of aten::mm", made=move, moved=True, against=1)
            story.barrier(barrier, 8, f"graph {shape}", change=change if seen and shape not in seen else None)
            story.spend(8)
            seen.setdefault(shape, len(seen) + 1)
    story.finish()
    return story


def test_graphs_that_are_made_in_advance_are_no_mistake() -> None:
    served = ["f32[4,40]", "f32[15,40]", "f32[15,40]", "f32[4,40]"] * 4
    assert warmed_up(["f32[4,40]", "f32[15,40]"], served).findings("recompile") == []
    (finding,) = warmed_up(["f32[4,40]", "f32[15,40]"], [*served, "f32[7,40]", "f32[9,40]"]).findings("recompile")
    assert (finding.count, finding.place.line) == (1, 18)  # the first at a barrier is none
    assert warmed_up(["f32[4,40]", "f32[15,40]"], ["f32[4,40]"] * 9).findings("recompile"), "for what comes never"


def test_what_takes_its_shape_from_a_tensor_that_was_brought_is_no_cause_of_its_own() -> None:
    story = Story()
    barrier, made = story.line(40, "xm.mark_step()"), story.line(21, "self.a = nn.Parameter(a.to(device))")
    update = story.line(36, "layer.a.sub_(grad, alpha=0.1)")
    for n in range(20):
        rank, began = 2 + n // 5, n % 5 == 0
        shapes = (f"f32[16,{rank - 1}]", f"f32[16,{rank}]")
        change = Change("shape", *shapes, "input of aten::mm", made=made if began else update, moved=began, against=1)
        with story.step():
            story.barrier(barrier, 8, f"rank {rank} {'new' if began else 'updated'}", change=change if n > 4 else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (21, 6)


def test_a_smaller_batch_that_comes_more_often_is_not_the_last_one() -> None:
    (finding,) = sizes([5, 3, 3, 5, 3, 3, 3, 5], axis=0).findings("recompile")
    assert "drop_last" not in finding.advice
    assert "Pad dimension 0 to 5" in finding.advice


def test_a_size_that_rises_step_by_step_is_no_padding() -> None:
    (finding,) = sizes([8, 8, 16, 16, 24, 24]).findings("recompile")
    assert finding.count == 2


def alternating(change: Change, story: Story, every: int = 4) -> Story:
    barrier = story.line(39, "xr.sync()")
    for n in range(24):
        with story.step():
            other = n % every == every - 1
            story.trace(1)
            story.barrier(barrier, 8, "other" if other else "usual", change=change if other else None)
            story.spend(8)
    story.finish()
    return story


def test_a_branch_is_told_with_its_condition_and_its_rhythm() -> None:
    story = Story()
    change = Change(
        "operation", "barrier", "aten::add_", "the next operation", stack=story.line(37, "opt.step()"),
        role="optimizer", condition=story.line(36, "if (step + 1) % 4 == 0:"), added=6, against=1,
    )  # fmt: skip
    (finding,) = alternating(change, story).findings("recompile")
    assert (finding.place.line, finding.rhythm, finding.confidence) == (37, "", "high"), "it was compiled once"
    assert "every 4 steps" in finding.cause
    assert "every 4 steps" in finding.cause
    assert "line 36 (`if (step + 1) % 4 == 0:`) decides" in finding.cause
    assert [place.line for place in finding.also] == [36]


def test_gradients_that_are_none_at_first_are_told_as_that() -> None:
    story = Story()
    change = Change(
        "operation", "aten::sum", "aten::add_", stack=story.line(35, "loss.backward()"), role="grad", against=1
    )
    (finding,) = alternating(change, story).findings("recompile")
    assert ".grad is None" in finding.cause
    assert "set_to_none=False" in finding.advice


def test_leaving_0_and_reaching_1_are_two_causes_at_one_line() -> None:
    story = Story()
    barrier, opt = story.line(34, "xr.sync()"), story.line(32, "opt.step()")
    for n, lr in enumerate((0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.9)):
        graph = str(lr) if lr in (0.0, 1.0) else "lr"
        change = Change(
            "scalar", str(max(0.0, round(lr - 0.2, 1))), str(lr), "alpha of aten::add_", stack=opt, name="lr"
        )
        with story.step():
            story.barrier(barrier, 8, graph, change=change if n else None)
            story.spend(8)
    found = story.findings("recompile")
    assert [(f.change.old, f.change.new) for f in found if f.change] == [("0.0", "0.2"), ("0.8", "1.0")]
    assert all(f.cause.startswith("lr (alpha of aten::add_) went from") for f in found)


def growing(role: str = "") -> Story:
    """From the second step on, one tensor more in each."""
    story = Story()
    barrier, stack = story.line(40, "xr.sync()"), story.line(35, "mean = torch.stack(history).mean()")
    for n in range(1, 9):
        change = Change("inputs", f"{n - 1} tensors", f"{n} tensors", "aten::stack", stack=stack, role=role)
        with story.step():
            story.trace(1)
            story.barrier(barrier, 8, f"{n} tensors", compile=100, change=change if n > 1 else None)
    story.finish()
    return story


def test_graphs_that_go_on_being_replaced_were_no_warm_up_in_the_first_steps_either() -> None:
    (finding,) = growing().findings("recompile")
    assert finding.count == 7  # all but the first
    assert finding.cost_s == pytest.approx(0.7)
    assert "1 tensors to 2 tensors" in finding.cause


def test_state_that_optimizers_make_in_the_first_steps_is_warm_up_whatever_follows() -> None:
    (finding,) = growing("state").findings("recompile")
    assert finding.count == 4  # those after the third


def test_a_list_that_holds_tensors_is_named() -> None:
    story = Story()
    change = Change(
        "outputs", "3 live outputs", "4 live outputs", "value of aten::addmm is now still held",
        stack=story.line(19, "history.append(logits)"), made=story.line(13, "logits = model(x)"),
        name="history", role="list", against=1,
    )  # fmt: skip
    (finding,) = alternating(change, story).findings("recompile")
    assert (finding.place.line, [place.line for place in finding.also]) == (19, [13])
    assert "the list history still holds a result of aten::addmm made at line 13" in finding.cause.lower()


def test_what_is_made_before_the_loop_of_the_barrier_is_a_way_in() -> None:
    """Each epoch sets sums to zero, which only the first graph of its loop holds."""
    story = Story()
    barrier = story.line(24, "xr.sync()", loops=(22,))
    made = story.line(20, "total = torch.zeros(())", loops=(18,))
    for n in range(24):
        first = n % 8 == 0
        with story.step():
            change = Change(
                "operation", "aten::zeros", "aten::add_", stack=barrier, expected=made, made=made, against=1
            )
            story.barrier(barrier, 8, "first" if first else "later", change=None if first else change)
            story.spend(8)
    assert story.findings("recompile") == []


def test_a_copy_that_a_condition_decides_on_is_no_way_in() -> None:
    """The best weights are copied before the next epoch's loop, whose first graph has to make the copies."""
    story = Story()
    barrier = story.line(24, "xr.sync()", loops=(22,))
    made = story.line(20, "best = copy.deepcopy(model.state_dict())", loops=(18,))
    condition = story.line(19, "if loss < lowest:", loops=(18,))
    for n in range(24):
        first = n in (8, 16)
        with story.step():
            change = Change(
                "operation", "aten::t", "aten::clone", stack=made, made=made, condition=condition, added=4, against=1
            )
            story.barrier(barrier, 8, "first" if first else "later", change=change if first else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert finding.place.line == 20
    assert "line 19 (`if loss < lowest:`) decides" in finding.cause


def test_a_helper_that_reads_in_every_block_is_one_cause() -> None:
    story = Story()
    barrier, check = story.line(36, "xr.sync()"), story.line(12, "assert torch.isfinite(x).all()")
    block = story.line(22, "return check_finite(x + self.fc(x))")
    for _ in range(8):
        with story.step():
            for graph in ("first", "second"):
                change = Change("operation", "aten::abs", "aten::native_layer_norm", stack=block, added=5, against=1)
                story.compile(graph, 100, check, change if graph == "second" else None, trigger="read")
                story.execute(graph, 5, check, "read")
                story.read(check)
            story.barrier(barrier, 8, "rest")
            story.spend(8)
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line, finding.count) == ("transfer", 12, 16)
    assert "before the barrier" in finding.cause
    assert "took 200 ms to compile" in finding.cause


def test_a_loop_of_another_number_of_passes_is_told_with_its_head() -> None:
    story = Story()
    head = story.line(30, "for x, y in group:")
    change = Change("operation", "4 passes", "2 passes", "the loop", stack=head, made=head, role="loop", against=1)
    (finding,) = alternating(change, story).findings("recompile")
    assert finding.place.line == 30
    assert "The loop (for x, y in group), all of which is in one graph, went from 4 passes to 2 passes" in finding.cause
    assert "same number of passes" in finding.advice


def test_a_sum_that_begins_as_a_number_in_every_epoch_is_a_way_in() -> None:
    story = Story()
    barrier, line = (
        story.line(24, "xr.sync()", loops=(22,)),
        story.line(23, "total = total + loss.detach()", loops=(22,)),
    )
    change = Change(
        "aliasing", "the same tensor as elsewhere", "another tensor", "self of aten::add", stack=line, against=1
    )
    for n in range(24):
        with story.step():
            story.barrier(barrier, 8, "later" if n % 8 else "first", change=change if n % 8 else None)
            story.spend(8)
    assert story.findings("recompile") == []


@pytest.mark.parametrize(
    ("what", "old", "new"), [("operation", "aten::add", "aten::add_"), ("argument", "0.0", "value 12")]
)
def test_a_sum_that_begins_as_a_number_is_no_mistake_in_a_late_epoch_either(what: str, old: str, new: str) -> None:
    story = Story()
    barrier, line = story.line(24, "xr.sync()"), story.line(23, "total += loss.detach()")
    change = Change(what, old, new, "other of aten::add", stack=line, expected=line, against=1)
    for n in range(24):
        with story.step():
            name = "usual" if n < 12 else "later" if n % 6 else "first"
            story.barrier(barrier, 8, name, change=change if name == "later" else None)
            story.spend(8)
    assert story.findings("recompile") == []


def test_without_a_barrier_in_the_middle_neither_part_is_compiled() -> None:
    story = Story()
    middle, end = story.line(22, "xr.sync()"), story.line(26, "xr.sync()")
    for step in range(12):
        with story.step():
            story.trace(1)
            if step == 5:
                story.barrier(middle, 2, "first part", compile=200)
            change = Change("operation", "aten::mm", "aten::t", "the barriers", middle, end, role="barrier", against=1)
            name = "second part" if step == 5 else "step"
            story.barrier(end, 8, name, compile=300, change=change if step == 5 else None)
            story.read(story.line(27, "print(loss.item())"), copy=0)
    story.finish()
    (finding,) = story.findings("recompile")
    assert (finding.count, finding.cost_s) == (1, pytest.approx(0.3))  # the barrier's own first graph counts as none
    assert finding.gain_s == pytest.approx(0.5, rel=0.02)


def test_a_line_that_reads_several_tensors_in_each_step_has_a_graph_for_each_of_them() -> None:
    story = Story()
    end, item = story.line(30, "xm.mark_step()"), story.line(19, "norms[name] = p.grad.norm().item()")
    shapes = ("f32[16,8]", "f32[16]", "f32[3,16]", "f32[3]")
    for _ in range(12):
        with story.step():
            story.barrier(end, 5)
            for before, shape in zip((shapes[-1], *shapes), shapes, strict=False):
                change = Change("shape", before, shape, "input of aten::norm", stack=item, against=1)
                story.compile(f"norm of {shape}", 20, item, change, "read", ops=1, again=0)
                story.execute(f"norm of {shape}", 0.1, item, "read")
                story.read(item)
    assert story.findings("recompile") == []


def test_an_index_that_a_line_reads_at_is_told_where_more_come_than_a_step_has() -> None:
    story = Story()
    end, item = story.line(30, "xm.mark_step()"), story.line(19, "return self.x[i].cpu()")
    for n in range(12):
        with story.step():
            for i in (2 * n, 2 * n + 1):
                change = Change("argument", str(i - 1), str(i), "index of aten::select", stack=item, against=1)
                story.compile(f"row {i}", 20, item, change if i else None, "read", ops=1, again=0)
                story.execute(f"row {i}", 0.1, item, "read")
                story.read(item, "aten::_to_copy")
            story.barrier(end, 5)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (19, 22), "two a step are its own"


def test_a_condition_in_a_loop_is_told_as_what_decides_and_what_follows_from_it_is_no_other_cause() -> None:
    story = Story()
    head, test = story.line(30, "for block in self.blocks:"), story.line(31, "if random.random() < self.drop:")
    barrier, backward = story.line(39, "xr.sync()"), story.line(36, "loss.backward()")
    changes = {
        4: Change("operation", "4 passes", "3 passes", "the loop", stack=test, made=head, role="loop", condition=test),
        5: Change("aliasing", "the same tensor", "another tensor", "self of aten::add_", stack=backward, role="grad"),
        7: Change("operation", "aten::view", "aten::zero_", "the next operation", stack=backward, role="zero_grad"),
    }
    for n in range(24):
        with story.step():
            kind = n % 8 if n % 8 in changes else 0
            story.barrier(barrier, 8, f"path {kind}", change=changes.get(kind))
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (31, 3)
    assert "In each pass of the loop (for block in self.blocks) line 31" in finding.cause
    assert "from 4 passes to 3 passes" in finding.cause
    assert "mask its result" in finding.advice


def test_a_copy_after_which_two_tensors_are_the_same_costs_one_graph_and_is_no_mistake() -> None:
    story = Story()
    line = story.line(22, "q = target(n)")
    change = Change(
        "aliasing", "another tensor", "the same tensor as elsewhere", "self of aten::t", stack=line, against=1
    )
    assert alternating(change, story, every=8).findings("recompile") == []


def test_the_second_step_of_an_optimizer_that_began_late_is_warm_up() -> None:
    story = Story()
    line, barrier = story.line(36, "opt_g.step()"), story.line(28, "xr.sync()")
    came = Change("operation", "aten::t", "aten::neg", "the next operation", stack=line, added=65, against=1)
    made = Change(
        "operation",
        "aten::zeros_like",
        "aten::mul_",
        "the next operation",
        stack=line,
        role="state",
        removed=4,
        against=2,
    )
    for n in range(24):
        with story.step():
            graph = "critic" if n % 6 != 5 else "generator's first" if n == 5 else "both"
            change = {"generator's first": came, "both": made}.get(graph)
            story.barrier(barrier, 8, graph, change=change)
            story.spend(8)
    (finding,) = story.findings()
    assert (finding.kind, finding.count) == ("recompile", 1)
    assert "65 operations from aten::neg on" in finding.cause


def test_of_graphs_that_micro_batches_take_turns_with_the_largest_remains() -> None:
    story = Story()
    barrier, line = story.line(39, "xr.sync()"), story.line(35, "loss.backward()")
    step = story.line(37, "opt.step()")
    added = Change("operation", "aten::mm", "aten::add_", "the next operation", line, line, role="grad", against=1)
    updated = Change("operation", "barrier", "aten::add_", "the end", step, step, role="optimizer", added=6, against=2)
    for n in range(24):
        story.trace(1)
        if n % 4 == 0:
            story.barrier(barrier, 2, "written", compile=200, ops=30)
        elif n % 4 == 3:
            story.barrier(barrier, 2, "optimizer too", compile=400, ops=50, change=updated)
        else:
            story.barrier(barrier, 2, "added to", compile=300, ops=40, change=added)
    story.finish()
    told = {finding.place.line: finding for finding in story.findings("recompile")}
    assert told[37].cost_s == pytest.approx(0.4)
    assert told[37].gain_s == 0  # one graph of four micro-batches and the optimizer's step takes no less
    assert told[35].gain_s == pytest.approx(0.3, rel=0.1)


def test_what_the_first_graph_lacks_is_warm_up_for_a_read_before_the_barrier_too() -> None:
    """Speculative decoding: the first round has no slice of the round before, neither up to the read nor at the end."""
    story = Story()
    barrier, read = story.line(40, "xm.mark_step()", loops=(30,)), story.line(37, "n = int(agrees.sum())", loops=(30,))
    line = story.line(39, "last = wanted[accepted:accepted + 1]", loops=(30,))
    for n in range(9):
        sliced = Change("operation", "aten::embedding", "aten::slice", "the next operation", line, line, added=1)
        story.trace(1)
        story.compile(f"read {min(n, 1)}", 80, read, sliced if n == 1 else None, "read", again=16)
        story.execute(f"read {min(n, 1)}", 2, read, "read")
        story.read(read)
        story.barrier(barrier, 4, f"step {min(n, 1)}", 90, change=sliced if n == 1 else None)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line) == ("transfer", 37)
    assert "a graph of its own that took 80 ms to compile" in finding.cause


def heads(tasks: int) -> Story:
    """A loop that trains a head of its own for each task, in turns."""
    story = Story()
    barrier, line = story.line(23, "torch_xla.sync()"), story.line(18, "out = heads[task](body(x))")
    for n in range(6 * tasks):
        task = n % tasks
        other = Change(
            "shape", f"f32[{task},32]", f"f32[{task + 1},32]", "input of aten::t", line, line, name="Linear.weight",
            against=task,
        )  # fmt: skip
        with story.step():
            story.barrier(barrier, 8, f"task {task}", change=other if 0 < n < tasks else None)
            story.spend(8)
    story.finish()
    return story


def test_modules_that_take_turns_have_a_graph_each_unless_there_are_many() -> None:
    assert heads(3).findings("recompile") == []
    (finding,) = heads(9).findings("recompile")
    assert (finding.place.line, finding.count) == (18, 8)


def test_lengths_of_source_and_target_are_one_finding_that_pads_both() -> None:
    story = Story()
    barrier = story.line(40, "xr.sync()")
    lines = story.line(31, "src = src.to(device)"), story.line(32, "tgt = tgt.to(device)")
    before: tuple[int, int] = (9, 9)
    for n, lengths in enumerate([(9, 9), (7, 9), (7, 5), (6, 5), (6, 8), (9, 8)]):
        which = int(lengths[0] == before[0])
        old, new = (f"s64[4,{pair[which]}]" for pair in (before, lengths))
        change = Change("shape", old, new, "input of aten::embedding", made=lines[which], moved=True, against=n)
        with story.step():
            story.barrier(barrier, 8, f"lengths {lengths}", change=change if n else None)
        before = lengths
    (finding,) = story.findings("recompile")
    assert (finding.count, finding.place.line, [place.line for place in finding.also]) == (5, 31, [32])
    assert finding.cause.startswith("Sizes vary together")
    assert "dimension 1 of src to 9, dimension 1 of tgt to 9" in finding.advice
    assert "src = torch.nn.functional.pad(src" in finding.remedy
    assert "tgt = torch.nn.functional.pad(tgt" in finding.remedy


def test_of_a_combination_each_cause_gains_its_share() -> None:
    story = Story()
    barrier, move = story.line(40, "xr.sync()"), story.line(35, "x = x.to(device)")
    penalty, swap = story.line(36, "loss = loss + penalty"), story.line(37, "loss = loss + swap(x)")
    made: dict[tuple[int, ...], int] = {}
    for graph in [(0, 0), (1, 0), (0, 0), (0, 1), (0, 0), (1, 1), (0, 0)]:
        line = penalty if graph == (1, 0) else swap
        against = made.get((0, 1) if graph == (1, 1) else (0, 0), 0)
        change = Change("operation", "aten::t", "aten::mul", stack=penalty if graph == (1, 1) else line, added=2)
        change = msgspec.structs.replace(change, against=against)
        with story.step():
            story.upload(0.1, move)
            story.barrier(barrier, 8, str(graph), compile=100, change=change if any(graph) else None)
        made.setdefault(graph, len(made) + 1)
    story.finish()
    found = story.findings("recompile")
    assert len(found) == 2
    assert sum(one.cost_s for one in found) == pytest.approx(0.3)
    assert all(one.gain_s <= one.cost_s + 1e-9 for one in found)
