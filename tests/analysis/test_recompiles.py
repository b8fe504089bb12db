"""Which compiles are too many, how they are grouped, and what is said of each cause."""

from __future__ import annotations

import msgspec
import pytest
from story import Story

from xlaprof.analysis.model import Finding
from xlaprof.events import Block, Change, Difference, GraphDiff, Operation


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
        "operation", "barrier", "aten::add_", "the next operation", stack=story.line(37, "loss = loss + penalty(x)"),
        condition=story.line(36, "if (step + 1) % 4 == 0:"), added=6, against=1,
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
    assert "once per optimizer step" in finding.advice


def test_leaving_0_and_reaching_1_are_one_cause_at_one_line() -> None:
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
    (finding,) = story.findings("recompile")
    assert finding.count == 2
    assert finding.cause.startswith("lr (alpha of aten::add_) went from 0.0 to 0.2 (and 1 more such change)")
    assert "exactly 0.0 and 1.0 are constants of the graph" in finding.cause


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


def test_state_that_optimizers_make_is_warm_up_however_late_and_often() -> None:
    assert growing("state").findings("recompile") == []


def test_the_path_that_begins_where_sizes_vary_is_theirs() -> None:
    """Nothing is selected at first, then five rows, then two: three graphs of one cause."""
    line = Story().line(33, "codes[dead] = codes[order[: len(dead)]]")
    index = Operation("aten::index", line)
    came = Block(new=[Operation("aten::t", line), index], added=12, roles={"": 12}, stack=line)
    path = Difference("operation", "barrier", "aten::t", came=came.new[0], block=came)
    size = Difference("shape", "s64[5]", "s64[2]", came=index, made=line, moved=True)
    begins = GraphDiff(against=1, common=20, added=12, differences=[path], roles=[""])

    def told(at: int) -> list[tuple[str, int]]:
        story = Story()
        assert story.line(33, "codes[dead] = codes[order[: len(dead)]]") == line
        barrier = story.line(40, "xr.sync()")
        varies = GraphDiff(against=2, common=at, differences=[size])
        for n, diff in enumerate((*6 * (None,), begins, varies)):
            with story.step():
                story.trace(1)
                story.barrier(barrier, 8, f"graph {max(5, n)}", compile=100, change=diff)
                story.spend(8)
        story.finish()
        return [(one.change.what, one.count) for one in story.findings("recompile") if one.change]

    assert told(28) == [("shape", 2)]
    assert sorted(told(3)) == [("operation", 1), ("shape", 1)]


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


@pytest.mark.parametrize(("each_ms", "told"), [(20, True), (400, False)])
def test_what_is_made_before_the_loop_of_the_barrier_is_a_way_in(each_ms: float, told: bool) -> None:
    """Each epoch sets sums to zero, which only the first graph of its loop holds: told where it takes a tenth."""
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
            story.spend(each_ms)
    found = story.findings("recompile")
    assert [one.place.line for one in found] == ([20] if told else [])
    assert all("first graph of a loop also holds what this line records before" in one.cause for one in found)
    assert all("directly before the loop" in one.advice for one in found)


def test_one_barrier_before_the_loop_is_one_finding_for_all_lines_before_it() -> None:
    story = Story()
    barrier = story.line(24, "xr.sync()", loops=(22,))
    total, shown = story.line(20, "total = torch.zeros(())", loops=(18,)), story.line(21, "show(net(z))", loops=(18,))
    less = Change("operation", "aten::zeros", "aten::add_", stack=barrier, expected=total, made=total, against=1)
    more = Change("operation", "aten::add_", "aten::mm", stack=shown, expected=barrier, made=shown, against=2)
    for n in range(24):
        graph, change = {0: ("first", None), 8: ("second", more), 16: ("first", None)}.get(n, ("later", less))
        with story.step():
            story.barrier(barrier, 8, graph, change=change)
            story.spend(20)
    (finding,) = story.findings("recompile")
    assert {finding.place.line, *(part.place.line for part in finding.parts)} == {20, 21}
    assert "directly before the loop at train.py:22" in finding.advice


@pytest.mark.parametrize("also_before", [True, False])
def test_elements_that_the_head_of_a_loop_takes_out_are_told_at_the_head(also_before: bool) -> None:
    """A barrier before the loop is before that: of what the first graph alone holds, the head's part stays there."""
    story = Story()
    barrier = story.line(24, "xr.sync()", loops=(22, 18))
    made = story.line(20, "image = noise * start", loops=(18,))
    taken = story.line(22, "for n, t in enumerate(plan.times):", loops=(22, 18))
    step = story.line(23, "image = model(image, t)", loops=(22, 18))
    went = [Operation("aten::mul", made)] * also_before + [Operation("aten::select", taken)]
    block = Block(old=went, removed=len(went) + 19, roles={"": len(went) + 19}, stack=went[0].stack)
    gone = Difference("operation", went[0].name, "aten::mm", expected=went[0], came=Operation("aten::mm", step),
                      block=block)  # fmt: skip
    diff = GraphDiff(against=1, common=1, removed=block.removed, differences=[gone], total=1, roles=[""])
    for n in range(24):
        first = n % 8 == 0
        with story.step():
            story.barrier(barrier, 8, "first" if first else "later", change=None if first else diff)
            story.spend(20)
    (found,) = story.findings("recompile")
    assert (found.place.line, found.count) == (22, 1)
    assert "takes each element out of enumerate(plan.times)" in found.cause
    assert found.remedy.splitlines()[0::2] == ["elements = list(enumerate(plan.times))", "for n, t in elements:"]


def test_a_small_graph_that_is_compiled_again_once_is_set_aside() -> None:
    def told(compile: float) -> list[Finding]:
        story = Story()
        change = Change(
            "scalar", "0.5", "0.25", "alpha of aten::add_", stack=story.line(53, "average.add_(x)"), against=1
        )
        for n in range(100):
            with story.step():
                story.trace(90)
                story.barrier(60, 8, "second" if n > 50 else "first", compile=compile, change=change if n else None)
        story.finish()
        return story.findings("recompile")

    assert [one.count for one in told(200)] == [1]
    assert told(20) == []


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


def test_gradients_that_are_added_up_do_not_follow_from_a_path_that_is_taken_later() -> None:
    """Every second graph adds to the gradients, by design; from the eighth on an ``if`` takes another path."""
    story = Story()
    barrier, backward = story.line(39, "xr.sync()"), story.line(36, "loss.backward()")
    path, test = story.line(38, "total = torch.zeros(())"), story.line(37, "if step % 8 == 7:")
    added = Change("operation", "aten::mm", "aten::add_", "the next operation", backward, role="grad", against=1)
    other = Change(
        "operation", "barrier", "aten::zeros", "the next operation", path, made=path, condition=test, against=2
    )
    for n in range(24):
        with story.step():
            change = other if n % 8 == 7 else added if n % 2 else None
            story.barrier(barrier, 8, change.role or "other" if change else "first", compile=400, change=change)
    of_path = [one for one in story.findings("recompile") if one.place.line == 38]
    assert [one.count for one in of_path] == [1]


def test_a_copy_after_which_two_tensors_are_the_same_costs_one_graph_and_is_no_mistake() -> None:
    story = Story()
    line = story.line(22, "q = target(n)")
    change = Change(
        "aliasing", "another tensor", "the same tensor as elsewhere", "self of aten::t", stack=line, against=1
    )
    assert alternating(change, story, every=8).findings("recompile") == []


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
    (finding,) = story.findings("recompile")  # the optimizer's step, every fourth time, is none
    assert (finding.place.line, finding.gain_s) == (35, pytest.approx(0.3, rel=0.1))


def test_a_combination_is_one_cause_s_and_the_other_keeps_what_it_would_cost_then() -> None:
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
    assert [one.cost_s for one in found] == pytest.approx([0.2, 0.1])
    assert "(1 of them for new combinations with other changes)" in found[0].cause
    assert "combinations" not in found[1].cause
    assert all(one.gain_s <= one.cost_s + 1e-9 for one in found)


def windows(*lengths: int) -> Story:
    story = Story()
    barrier = story.line(39, "xr.sync()")
    cut = story.line(21, "image = image[:, start : start + side, start : start + side]")
    before = 0
    for n, length in enumerate(lengths):
        bounds = {"start": (before, n), "end": (before + lengths[before], n + length)}
        moved = [
            Difference("argument", str(old), str(new), name, came=Operation("aten::slice", cut))
            for name, (old, new) in bounds.items()
        ]
        with story.step():
            story.barrier(barrier, 8, f"window {n}", change=GraphDiff(differences=moved, against=n) if n else None)
        before = n
    return story


def test_of_a_slice_all_bounds_that_changed_are_named() -> None:
    (finding,) = windows(36, 40, 32, 44).findings("recompile")
    assert "start (start of aten::slice) changed from 0 to 1" in finding.cause
    assert "its end, start + side, from 36 to 41, so that a slice of 36 became one of 40" in finding.cause
    assert finding.advice.startswith("Read as many elements each time"), "positions in a tensor have a length as well"
    (finding,) = windows(36, 36, 36, 36).findings("recompile")
    assert "so that a slice" not in finding.cause


@pytest.mark.parametrize(
    ("code", "reads", "remedy"),
    [
        ("self.rows[self.head] = row", False, "position = torch.tensor([self.head]).to(self.rows.device)"),
        ("return (accepted[best] + missed[best]) / 2", True, "position = best.reshape(1)"),
    ],
)
def test_an_index_is_held_in_a_tensor_of_one_element(code: str, reads: bool, remedy: str) -> None:
    story = Story()
    barrier, line = story.line(39, "xr.sync()"), story.line(21, code)
    for n in range(12):
        with story.step():
            if reads:
                story.execute("up to the index", 5, line, "read")
                story.read(line)
            change = Change("argument", str(n - 1), str(n), "index of aten::select", stack=line, against=n)
            story.barrier(barrier, 8, f"index {n}", change=change if n else None)
            story.spend(8)
    (made,) = [one for one in story.findings() if one.place.line == 21]
    assert (made.kind, made.remedy.splitlines()[0]) == ("recompile", remedy)
    assert [one.kind for one in made.parts] == ["transfer"] * reads, "the value that is read makes the constant"
    if reads:
        assert made.advice.startswith("Read with index_select at a position")
