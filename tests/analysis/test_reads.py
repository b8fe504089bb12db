"""Which reads are findings, in which words, with which rhythm and cost; and the fallbacks beside them."""

from __future__ import annotations

import pytest
from story import MS, Story

from xlaprof.analysis.evidence.reading import SCALAR
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import Change, Selected, StepDigest, TransferFromDevice


def test_rhythms() -> None:
    def rhythm(*steps: int, each: int = 1) -> str:
        rhythm = Rhythm()
        for step in steps:
            for _ in range(each):
                rhythm.at(step)
        return rhythm.text(of=max(steps, default=0) + 1)

    assert rhythm() == ""
    assert rhythm(4) == "once"
    assert rhythm(*range(9)) == "every step"
    assert rhythm(*range(9), each=3) == "3 times a step"
    assert rhythm(*range(0, 90, 10)) == "every 10 steps"
    assert rhythm(*range(0, 90, 10), each=4) == "4 times after every 10 steps"
    assert rhythm(1, 2, 3, 5, 8, 13, 21, 34) == "now and then, in 8 steps"
    assert rhythm(7, each=12) == "12 times in one step"


def test_a_rhythm_counts_distances_in_bounded_memory_and_adds_up() -> None:
    rhythm, other = Rhythm(), Rhythm()
    for n in range(1000):
        rhythm.at(n * n)
        other.at(5 * n)
    assert len(rhythm.gaps) <= 16
    rhythm.merge(other)
    assert rhythm.count == rhythm.steps == 2000


def looped(every: int = 1, steps: int = 40, **read: object) -> Story:
    """A loop whose steps have no name, with a read after its barrier."""
    story = Story()
    barrier = story.line(20, "torch_xla.sync()", loops=(10,))
    item = story.line(22, "log(loss.item())", loops=(10,))
    for n in range(steps):
        story.trace(4)
        story.barrier(barrier, 20)
        if not n % every:
            story.read(item, **read)  # type: ignore[arg-type]
    return story


def test_reads_side_by_side_to_the_same_end_are_one_finding() -> None:
    """Without one of them the other would wait as long. What is read to another end stays a finding of its own."""
    story = Story()
    barrier = story.line(20, "torch_xla.sync()", loops=(10,))
    lines = ["scores.append(probs.cpu())", "labels.append(y.cpu())", "if loss.item() > limit:"]
    reads = [story.line(30 + n, code, func="collect", outer=(22,), loops=(0, 10)) for n, code in enumerate(lines)]
    for _ in range(40):
        story.trace(4)
        story.barrier(barrier, 20)
        for read, op in zip(reads, ("aten::_to_copy", "aten::_to_copy", SCALAR), strict=True):
            story.barrier(read, 5, f"of {read}", trigger="read")
            story.read(read, op=op)
    copies, number = sorted(story.findings("transfer"), key=lambda one: one.place.line)
    assert [copies.place.line, *(part.place.line for part in copies.parts)] == [30, 31]
    assert (number.place.line, number.parts) == (32, ())


def test_the_rhythm_of_a_read_is_found_without_named_steps() -> None:
    (finding,) = looped(every=5).findings()
    assert (finding.kind, finding.rhythm, finding.count) == ("transfer", "every 5 steps", 8)
    assert ".item() reads one number from the device every 5 steps" in finding.cause
    assert "read it a step later" in finding.advice  # not more seldom still


def test_a_read_of_every_step_comes_less_often() -> None:
    (finding,) = looped().findings()
    assert "read it every 10 steps, or at the end" in finding.advice
    assert "losses.append(loss.detach())" in finding.remedy


@pytest.mark.parametrize("epochs", [False, True])
def test_an_evaluation_that_reads_every_turn_adds_up_on_the_device(epochs: bool) -> None:
    """Its loop has no barrier: the barrier that comes next, after an epoch, is the training's."""
    story = Story()
    outer = {"outer": (50,), "loops": (30, 45)} if epochs else {"loops": (30,)}
    call = {"outer": (49,), "loops": (10, 45)} if epochs else {"loops": (10,)}
    barrier = story.line(20, "torch_xla.sync()", **call)  # type: ignore[arg-type]
    item = story.line(32, "total += loss(model(x), y).item()", func="test" if epochs else "train", **outer)  # type: ignore[arg-type]
    for _ in range(4):
        for _ in range(20):
            story.trace(4)
            story.barrier(barrier, 5)
        for _ in range(5):
            story.trace(2)
            story.compile("evaluate", 300, item, None, "read", again=12)
            story.execute("evaluate", 4, item, "read")
            story.read(item)
    story.finish()
    (finding,) = story.findings("transfer")
    assert "before the barrier" not in finding.cause
    assert finding.advice == (
        "Add up on the device, and read the sum once, after the loop; end every turn of the loop with torch_xla.sync() "
        "(xlaprof.runtime.sync()), before a read."
    )
    assert "print(correct.item())  # once" in finding.remedy
    assert finding.cost_s < 0.3  # its graph is the evaluation's own


def test_graphs_that_only_the_reads_of_an_evaluation_need_are_their_cost() -> None:
    """Each class is a graph of its own, as the read before it ended the graph; one for all would do."""
    story = Story()
    barrier = story.line(20, "torch_xla.sync()", "main", loops=(10,))
    lines = {
        "union": story.line(83, "if union > 0:", "update", outer=(40,), loops=(80, 38)),
        "sums": story.line(84, "sums[c] += inter.item()", "update", outer=(40,), loops=(80, 38)),
    }
    for _ in range(2):
        for _ in range(10):
            story.trace(4)
            story.barrier(barrier, 5)
        for _ in range(4):
            for label in range(3):
                other = Change("scalar", f"{label - 1}", f"{label}", "c", against=1) if label else None
                for name, line in lines.items():
                    story.trace(1)
                    story.compile(f"{name} {label}", 300, line, other, "read", ops=28, again=27)
                    story.execute(f"{name} {label}", 4, line, "read")
                    story.read(line)
    story.finish()
    found = {finding.place.line: finding for finding in story.findings("transfer")}
    assert {line: finding.cost_s // 0.3 for line, finding in found.items()} == {83: 2, 84: 3}
    assert "computed once more, as 2 graphs of its own that took 600 ms to compile" in found[83].cause
    assert "end every turn of the loop with torch_xla.sync() (xlaprof.runtime.sync()), before a" in found[83].advice
    compiling = next(account for account in story.report().accounts if account.what == "compile")
    assert compiling.explained_s == pytest.approx(1.5)


def test_a_late_read_costs_nothing_and_is_not_reported() -> None:
    assert looped(late=True).findings() == []


def test_a_read_of_what_the_device_had_finished_long_ago_is_not_reported() -> None:
    story = Story()
    barrier, item = story.line(20, "torch_xla.sync()"), story.line(22, "log(loss.item())")
    for _ in range(40):
        with story.step():
            story.barrier(barrier, device=2)
            story.trace(20)  # the host is the slower one
            story.read(item, copy=0.002)
    assert story.findings("transfer") == []


@pytest.mark.parametrize(("ends", "follows"), [("torch_xla.sync()", True), ("for x, y in loader:", False)])
def test_a_read_that_follows_the_barrier_is_not_told_to_come_after_it(ends: str, follows: bool) -> None:
    """A metric is computed from what the step left; a loader's barrier, above the read, ends the turn."""
    story = Story()
    barrier, item = story.line(44, ends, loops=(31,)), story.line(47, "log(error.item())", loops=(31,))
    for _ in range(20):
        story.trace(4)
        story.barrier(barrier, 12)
        story.compile("hits", 300, item, trigger="read")
        story.execute("hits", 5, item, "read")
        story.read(item)
    (finding,) = story.findings()
    assert ("it comes after the barrier (line 44), and what is computed since" in finding.cause) is follows
    assert ("it comes before the barrier" in finding.cause) is not follows
    assert ("after the barrier (line 44)" in finding.advice) is not follows


def test_a_read_before_the_barrier_is_one_finding_with_the_graph_that_it_needs() -> None:
    story = Story()
    barrier, item = story.line(44, "torch_xla.sync()", loops=(31,)), story.line(41, "log(loss.item())", loops=(31,))
    for n in range(20):
        story.trace(4)
        if n % 5 == 0:
            story.compile("loss only", 300, item, trigger="read")
            story.execute("loss only", 5, item, "read")
            story.read(item)
        story.barrier(barrier, 12)
    (finding,) = story.findings()
    assert (finding.kind, 0.3 < finding.cost_s < 0.4) == ("transfer", True)
    assert finding.gain_s < 0.4
    assert "before the barrier (line 44), so the graph up to here runs once more" in finding.cause
    assert "a graph of its own that took 300 ms to compile" in finding.cause
    assert [place.line for place in finding.also] == [44]


def test_compiling_in_a_read_is_no_wait_for_the_device() -> None:
    story = Story()
    barrier, item = story.line(20, "torch_xla.sync()", loops=(10,)), story.line(15, "log(loss.item())", loops=(10,))
    for _ in range(10):
        start = story.now
        story.compile("loss only", 300, item, trigger="read")
        story.execute("loss only", 5, item, "read")
        story.spend(5)
        op = story.text(SCALAR)
        story.emit(TransferFromDevice(t=start, dur=story.now - start, wait=5 * MS, bytes=4, op=op, stack=item))
        story.barrier(barrier, 0.1)
    (finding,) = story.findings("transfer")
    assert "10 times, 50 ms waited" in finding.cause


@pytest.mark.parametrize("comprehension", [False, True])
def test_a_read_at_the_end_of_every_epoch_is_no_habit(comprehension: bool) -> None:
    def epochs(line_loop: int) -> Story:
        story = Story()
        barrier = story.line(38, "torch_xla.sync()", func="main", loops=(33,))
        if comprehension:  # a function of its own, called by the one that it is written in
            item = story.line(
                42,
                "print({name: value.item() for name, value in metrics.items()})",
                func="main.<locals>.<dictcomp>",
                outer=(42,),
                loops=(line_loop, line_loop),
            )
        else:
            item = story.line(42, "print(total.item())", func="main", loops=(line_loop,))
        for _ in range(4):
            for _ in range(6):
                story.trace(2)
                story.barrier(barrier, 10)
            story.read(item)
        return story

    assert epochs(31).findings("transfer") == []  # for epoch in ...: around the loop of line 33
    assert len(epochs(33).findings("transfer")) == 1  # in the loop itself: every sixth step


def test_reads_that_a_loop_without_a_barrier_ends_in_are_none_but_those_in_the_loop_are() -> None:
    def captions(loop_of_read: int) -> Story:
        story = Story()
        read = story.line(44, "picture = x.cpu()", func="main", loops=(loop_of_read,))
        line = story.line(19, "h = torch.relu(self.inp(x))", func="forward", outer=(42,), loops=(0, 40))
        for n in range(5):
            story.trace(20)
            story.compile(
                f"unrolled {n if loop_of_read == 40 else 0}", 500, read, None, "read", 600 + n, loops=50, loop=line
            )
            story.execute("unrolled", 50, read, "read")
            story.read(read, "aten::_to_copy")
        return story

    assert {finding.kind for finding in captions(37).findings()} == {"missing_barrier"}
    assert "transfer" in {finding.kind for finding in captions(40).findings()}


def test_reads_in_the_loop_that_gives_the_device_work_count_without_a_barrier_between_them() -> None:
    story = Story()
    story.barrier(story.line(3, "torch_xla.sync()"), 1, "set-up")
    story.barrier(story.line(4, "torch_xla.sync()"), 1, "set-up too")
    call, item = story.line(21, "h = model(x)", loops=(12,)), story.line(22, "peak = h.max().item()", loops=(12,))
    for _ in range(6):
        story.trace(2)
        story.execute("compiled", 10, call, "dynamo")
        story.read(item)
    (finding,) = story.findings("transfer")
    assert (finding.place.line, finding.count) == (22, 6)


def test_ways_of_reading_at_one_line_are_one_finding() -> None:
    story = Story()
    barrier, line = story.line(20, "torch_xla.sync()"), story.line(22, "log(loss.item(), image.cpu())")
    for _ in range(10):
        with story.step():
            story.trace(3)
            story.barrier(barrier, 10)
            story.read(line)
            story.read(line, "aten::_to_copy")
    (finding,) = story.findings()
    assert finding.count == 20


def test_digests_keep_the_rhythm() -> None:
    story = looped(steps=0)
    item, name = story.line(22, "log(loss.item())", loops=(10,)), story.text("train")
    key = f"{item}:{story.text(SCALAR)}"
    for n in range(100):
        reads = {key: [1, 3 * MS, 3 * MS]} if n % 4 == 0 else {}
        story.emit(StepDigest(name=name, num=n, t=story.now, dur=10 * MS, executions=1, busy=5 * MS, reads=reads))
        story.spend(10)
    (finding,) = story.findings()
    assert (finding.rhythm, finding.confidence, finding.count) == ("every 4 steps", "medium", 25)


def test_two_ranks_add_up() -> None:
    one, two = looped().run(), looped().run()
    (finding,) = (one + two).report("").findings
    assert finding.count == 80
    assert finding.rhythm == "every step"


def test_a_fallback_says_what_its_copies_cost() -> None:
    story = Story()
    barrier, eig = story.line(20, "torch_xla.sync()"), story.line(15, "r = torch.linalg.eigvals(w)")
    for _ in range(10):
        with story.step():
            story.trace(3)
            start = story.now
            story.read(eig, "aten::linalg_eig", copy=2)
            story.spend(4)
            story.upload(1, eig)
            story.replay_fallback(eig, "aten::linalg_eig", start)
            story.barrier(barrier, 10)
    (finding,) = story.findings("fallback")
    assert finding.rhythm == "every step"
    assert "20 ms copying 40 bytes to the host, 10 ms copying 640 bytes back, 40 ms on the CPU" in finding.evidence[1]


def test_fallbacks_while_setting_up_named_steps_are_none() -> None:
    story = Story()
    setting_up = story.line(3, "order = torch.randperm(n)")
    for _ in range(3):
        story.fallback(setting_up, "aten::randperm", 0.1)
    barrier = story.line(20, "torch_xla.sync()")
    for _ in range(20):
        with story.step():
            story.barrier(barrier, 10)
            story.spend(9)
    assert story.findings("fallback") == []


def selecting(with_selection: bool = True) -> Story:
    story = Story()
    barrier, line = story.line(44, "torch_xla.sync()"), story.line(41, "loss = F.cross_entropy(logits[a], tags[a])")
    back = story.line(42, "loss.backward()")
    for _ in range(8):
        with story.step():
            if with_selection:
                story.trace(1)
                story.execute("count", 1, line, "read")
                story.read(line, "aten::index")
            story.emit(Selected(t=story.now, op=story.text("aten::index_put"), stack=back))
            story.barrier(barrier, 5)
    return story


def test_the_backward_of_a_selection_is_a_part_of_its_finding() -> None:
    (finding,) = selecting().findings("fallback")
    assert finding.place.line == 41
    assert "ignore_index" in finding.remedy
    assert "Its gradient is put back by the same mask at line 42 (aten::index_put)" in finding.cause
    assert [place.line for place in finding.also] == [42]


def test_a_write_by_a_mask_alone_is_nobodys_mistake() -> None:
    assert selecting(with_selection=False).findings("fallback") == []


def test_reads_after_the_loop_are_none_though_a_loop_goes_around_the_whole_program() -> None:
    story = Story()
    barrier = story.line(35, "torch_xla.sync()", outer=(5,), loops=(32, 4))
    best = story.line(36, "print([s.argmax().item() for s in scores])", outer=(5,), loops=(0, 4))
    for _ in range(12):
        story.trace(2)
        story.barrier(barrier, 10)
    for _ in range(12):
        story.execute("argmax", 1, best, "read")
        story.read(best)
    assert story.findings() == []


def test_a_read_whose_first_graph_holds_a_loop_of_the_set_up_is_one_all_the_same() -> None:
    story = Story()
    barrier, item = story.line(43, "xm.mark_step()", loops=(40,)), story.line(42, "i = index.item()", loops=(40,))
    setting_up = story.line(15, "values.append(ramp[i])")
    for n in range(12):
        story.trace(3)
        if not n:
            story.compile("index", 300, item, trigger="read", loops=12, loop=setting_up)
        story.execute("index", 5, item, "read")
        story.read(item)
        story.barrier(barrier, 10)
    (finding,) = story.findings("transfer")
    assert (finding.place.line, finding.count) == (42, 12)


def test_a_model_that_is_copied_to_the_host_before_the_first_step_is_no_habit() -> None:
    story = Story()
    copy, barrier = story.line(35, "self.actor = copy.deepcopy(self.q).cpu()"), story.line(60, "xr.sync()")
    for n in range(5):
        change = Change("shape", "f32[24,9]", f"f32[{n}]", "input of aten::clone", stack=copy, against=1)
        story.compile(f"parameter {n}", 50, copy, change if n else None, trigger="read")
        story.execute(f"parameter {n}", 1, copy, "read")
        story.read(copy, "aten::_to_cpu")
    story.barrier(barrier, ops=0)
    for _ in range(6):
        with story.step():
            story.barrier(barrier, 8)
            story.spend(8)
    assert story.findings() == []


def test_tensors_that_are_read_once_in_the_middle_of_the_run_are_no_habit() -> None:
    story = Story()
    barrier, save = (
        story.line(20, "xm.mark_step()"),
        story.line(32, "torch.save({k: v.cpu() for k, v in ema.items()}, f)"),
    )
    for n in range(24):
        with story.step():
            story.trace(1)
            story.barrier(barrier, device=5)
            if n == 11:
                for _ in range(4):
                    story.read(save, "aten::_to_copy")
    assert story.findings("transfer") == []


def test_a_read_is_measured_by_the_time_the_device_was_at_work_not_by_the_start_of_the_program() -> None:
    """A compiled function without barriers: its reads of 0.3 ms are nothing to four seconds of imports before them."""
    story = Story()
    call = story.line(23, "value = score(x, difficulty)", loops=(21,))
    read = story.line(24, "difficulty = 0.9 * difficulty + 0.01 * value.item()", loops=(21,))
    story.spend(4000)
    for _ in range(8):
        story.spend(1)
        story.compile("step", 80, call, trigger="dynamo")
        story.execute("step", 0.3, call, trigger="dynamo")
        story.read(read)
    story.finish()
    (finding,) = story.findings("transfer")
    assert (finding.place.line, finding.count) == (24, 8)


def test_a_read_after_the_barrier_of_a_named_step_is_of_the_step_and_not_of_a_loop_without_a_barrier() -> None:
    story = Story()
    barrier, item = story.line(31, "xr.sync()", loops=(23,)), story.line(32, "total += loss.item()", loops=(23,))
    for _ in range(20):
        with story.step():
            story.trace(2)
            story.barrier(barrier, 5)
            story.read(item)
    (finding,) = story.findings("transfer")
    assert "every 10 steps" in finding.advice
    assert "end every turn" not in finding.advice


def test_a_read_for_the_log_that_costs_little_is_none_though_it_needs_a_graph_of_its_own() -> None:
    def story(every: int) -> list[str]:
        story = Story()
        read = story.line(20, "print(loss.item())", loops=(10,))
        barrier = story.line(22, "torch_xla.sync()", loops=(10,))
        for step in range(40):
            story.trace(30)
            if step % every == 0:
                story.compile("up to the loss", 20, read, trigger="read", again=50)
                story.execute("up to the loss", 2, read, "read")
                story.read(read)
            story.barrier(barrier, 10)
        story.finish()
        return [finding.kind for finding in story.findings()]

    assert story(every=20) == []
    assert "transfer" in story(every=1)


def test_the_reads_of_a_decoder_beside_the_training_are_counted_in_its_own_loop() -> None:
    story = Story()
    barrier, decoder = story.line(12, "torch_xla.sync()", loops=(10,)), story.line(30, "torch_xla.sync()", loops=(28,))
    ended = story.line(31, "if finished.all():", func="decode", loops=(28,))
    for _ in range(40):
        story.trace(5)
        story.barrier(barrier, 10)
    for _ in range(30):
        story.trace(5)
        story.barrier(decoder, 10, graph="decode")
        story.read(ended)
    story.finish()
    assert [(one.kind, one.place.line, one.count) for one in story.findings("transfer")] == [("transfer", 31, 30)]


@pytest.mark.parametrize(
    ("code", "takers", "words"),
    [
        ("if change.item() < tolerance:", (), "; where a value ends the loop early, read it every few turns"),
        ("if change.item() < least:", ("if change.item() < least: break",), "every 10 turns"),
        ("residual = change.max().item()", ("if residual < tolerance: break",), "Run a fixed number of turns"),
    ],
)
def test_a_read_that_may_end_its_loop_is_not_moved_behind_it(code: str, takers: tuple[str, ...], words: str) -> None:
    """The turns of a solver that stops when it has settled: its barrier comes before the read already."""
    story = Story()
    barrier, settled = (story.line(line, "torch_xla.sync()", loops=(loop,)) for line, loop in ((12, 10), (44, 40)))
    read = story.line(45, code, loops=(40,), takers=takers)
    for _ in range(40):
        story.trace(5)
        story.barrier(barrier, 10)
    for _ in range(30):
        story.trace(5)
        story.barrier(settled, 10, graph="relax")
        story.read(read)
    story.finish()
    (finding,) = story.findings("transfer")
    assert words in finding.advice
    assert "stops" not in finding.advice, "a test that stops the loop cannot wait until it has ended"
    assert "sync()" not in finding.advice, "the loop has its barrier"
