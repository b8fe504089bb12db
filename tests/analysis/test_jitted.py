"""A program that calls jitted functions in its loop, with no barrier: what is of the loop, and what is not."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from story import MS, Story

from xlaprof.analysis.model import Finding
from xlaprof.events import ArgumentChange, JitCompile, Look, OutsideOperations, TransferToDevice

from .test_gaps import Watched

NUMBER = "jax.Array: one number"


class Jitted(Watched):
    """A story whose ``train`` calls the jitted function ``step`` at line 40, in the loop at line 38."""

    def __init__(self) -> None:
        super().__init__()
        self.call = self.line(40, "loss = step(state, batch)", outer=(90,), loops=(38,))
        self.code = self.line(10, "def step(state, batch):", func="step")

    def made(self, *changes: ArgumentChange, ms: float = 400, versions: int = 0) -> None:
        """JAX makes a program of ``step``."""
        start = self.now
        self.spend(ms)
        name = self.text("step")
        made = JitCompile(start, self.now - start, name, self.call, self.code, versions=versions, changes=list(changes))
        self.emit(made)

    def found(self, kind: str) -> list[Finding]:
        self.finish()
        return self.findings(kind)


def test_what_happened_once_before_the_loop_is_not_joined_with_what_the_turns_do() -> None:
    """Both are called from ``main()``, at the same line: a function that calls what is jitted is where turns differ."""
    for each, found in ((2, 0), (30, 1)):
        story = Jitted()
        with story.step("step"):
            story.made()
            story.execute("step", 5, story.call)
        for row in (51, 52, 53):  # an archive is read
            story.seen(900, "python", story.line(row, "rows.append(line)", func="load", outer=(37, 90)))
        for _ in range(40):
            with story.step("step"):
                story.execute("step", 5, story.call)
                story.spend(1)
                story.seen(5 + each, "python", story.line(60, "votes.count(x)", func="vote", outer=(41, 90)))
        gaps = story.found("idle_gap")
        assert [one.place.line for one in gaps] == [60] * found
        for gap in gaps:
            assert gap.cost_s == pytest.approx(40 * 0.031, rel=0.05)


@pytest.mark.parametrize(("every", "kept"), [(20, 0), (1, 1)])
def test_a_mean_that_is_read_every_so_many_steps_is_for_the_log(every: int, kept: int) -> None:
    """Twenty numbers at once, each twentieth step, in the loop of the steps."""
    story = Jitted()
    fetch = story.line(44, "mean = np.mean(jax.device_get(losses))", outer=(90,), loops=(38,))
    for turn in range(1, 201):
        with story.step("step"):
            if turn == 1:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(4)
            if turn % every == 0:
                for _ in range(every):
                    story.read(fetch, NUMBER)
                story.spend(2)  # the device has nothing to do
    found = story.found("transfer")
    assert [one.place.line for one in found] == [44] * kept
    for one in found:
        assert one.cause.startswith("jax.device_get() reads one number from the device in every step")


@pytest.mark.parametrize(
    ("at", "values", "found"),
    [
        ((2,), "30 60", 0),  # both horizons are warmed up
        ((2, 3), "30 60 90", 0),
        ((30, 60), "0 1 2", 1),  # an epoch's number: another in each epoch
        ((2,), "0.1 0.05", 1),  # a rate, which decides nothing
        ((2, 3, 4, 5), "1 2 3 4 5", 1),
    ],
)
def test_a_static_number_with_few_values_that_are_warmed_up_is_meant(
    at: tuple[int, ...], values: str, found: int
) -> None:
    story, numbers = Jitted(), values.split()
    for turn in range(100):
        with story.step("step"):
            if turn == 0:
                story.made()
            if turn in at:
                nth = at.index(turn)
                change = ArgumentChange("static", "horizon", numbers[nth], numbers[nth + 1])
                story.made(change, versions=nth + 1)
            story.execute("step", 5, story.call)
            story.spend(5)
    assert len(story.found("recompile")) == found


@pytest.mark.parametrize(
    ("seconds", "run", "loop", "found"),
    [(14, 60, 88, 1), (14, 60, 0, 0), (3, 60, 88, 0), (14, 300, 88, 0)],
)
def test_few_turns_of_a_loop_are_told_of_where_they_take_long_to_compile(
    seconds: int, run: int, loop: int, found: int
) -> None:
    """Without a loop a function is called several times; in a long run the first program takes what it may."""
    story = Story()
    turn = story.line(24, "h = relu(dense(x))", func="evolve", outer=(89,), loops=(0, loop))
    for nth, took in enumerate((seconds, 13)):
        start, name = story.now, story.text("train_step")
        story.spend(took * 1000)
        made = JitCompile(start, story.now - start, name, turn, versions=nth, ops=1_100, turns=14, loop=turn)
        story.emit(msgspec.structs.replace(made, loop_ops=990))
    story.spend(run * 1000)
    story.finish()
    unrolled = story.findings("unrolled_loop")
    assert [one.count for one in unrolled] == [1] * found
    for one in unrolled:
        assert one.cost_s == pytest.approx(14 * 0.9 * 13 / 14)
        assert one.place.line == 88
        assert "in the loop of train.py:88, line 24 is traced 14 times" in one.cause


def test_a_compilation_of_an_unrolled_loop_that_was_made_again_is_counted_once() -> None:
    story = Jitted()
    turn = story.line(20, "x = f(x)", func="step", loops=(19,))
    for nth in range(3):  # a function object made anew in each stage
        start = story.now
        story.spend(4_000)
        again = [ArgumentChange("anew")] if nth else []
        looped = {"ops": 2_000, "turns": 30, "loop": turn, "loop_ops": 1_500, "versions": nth}
        story.emit(JitCompile(start, 4_000 * MS, story.text("step"), story.call, story.code, changes=again, **looped))
        for _ in range(20):
            with story.step("step"):
                story.execute("step", 5, story.call)
                story.spend(5)
    (anew,) = story.found("recompile")
    (unrolled,) = story.findings("unrolled_loop")
    assert (anew.count, unrolled.count) == (2, 1)
    assert anew.cost_s + unrolled.cost_s < 12


def test_what_is_computed_of_a_weakly_typed_array_is_no_cause_of_its_own() -> None:
    """A scale is made of a number: the model is typed after its first update, the optimizer's mean of it after two."""
    story, weak = Jitted(), "f32[16], weakly typed (from a Python number)"
    for turn in range(40):
        with story.step("step"):
            if turn < 3:
                changes = [ArgumentChange("weak type", name, weak, "f32[16]") for name in ("model[10]", "optimizer[7]")]
                story.made(*changes[turn - 1 : turn] if turn else (), ms=400 + 40 * turn, versions=turn)
            story.execute("step", 5, story.call)
            story.spend(5)
    (finding,) = story.found("recompile")
    assert (finding.count, finding.cost_s) == (2, pytest.approx(0.92))
    assert finding.cause.startswith("model[10] went from"), "it comes first"
    assert "Give model[10] one dtype from the first call on" in finding.advice


@pytest.mark.parametrize(("other", "found"), [("signals['heart'] f32[16]", 1), ("signals['speed'] f32[16]", 2)])
def test_entries_that_a_batch_lacks_are_one_cause_in_all_functions_that_it_is_given_to(other: str, found: int) -> None:
    story = Jitted()
    test = story.line(50, "tables = [confusion(s) for s in loader]", outer=(90,), loops=(50,))
    code, name = story.line(20, "def confusion(signals):", func="confusion"), story.text("confusion")
    lacks = {3: "signals['heart'] f32[16]", 5: "signals['breath'] f32[16]"}
    for turn in range(40):
        with story.step("step"):
            if turn in (0, 3, 5):
                change = [ArgumentChange("structure", "signals", "", lacks[turn])] if turn else []
                story.made(*change, versions=len(change))
            story.execute("step", 5, story.call)
            story.spend(5)
    for nth, changes in enumerate(([], [ArgumentChange("structure", "signals", other, "")])):
        start = story.now
        story.spend(300)
        story.emit(JitCompile(start, story.now - start, name, test, code, versions=nth, changes=changes))
    told = story.found("recompile")
    assert len(told) == found
    assert ("step, confusion were compiled again 3 times" in told[0].cause) is (found == 1)


def test_a_batch_that_is_shorter_and_longer_too_is_another_sort_and_no_last_one() -> None:
    for new, found in (("i32[280,48]", 0), ("i32[280,24]", 1)):
        story = Jitted()
        for turn in range(40):
            with story.step("step"):
                if turn in (0, 2):
                    change = [ArgumentChange("shape", "words", "i32[520,24]", new, 0)] if turn else []
                    story.made(*change, versions=len(change))
                story.execute("step", 5, story.call)
                story.spend(5)
        assert len(story.found("recompile")) == found


@pytest.mark.parametrize(("code", "found"), [("loss = step(state, batch)", 0), ("x = draw(rows)", 1)])
def test_the_host_at_a_jitted_call_takes_its_arguments_apart(code: str, found: int) -> None:
    """Which the next step needs, and no plain Python that could be moved out of the loop."""
    story = Jitted()
    seen = story.call if not found else story.line(39, code, outer=(90,), loops=(38,))
    for turn in range(40):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(6)
            story.seen(30, "python", seen)
    assert len(story.found("idle_gap")) == found


def sized(*sizes: int, at: int = 0) -> list[ArgumentChange]:
    """The series that a call is given has another length each time."""
    return [ArgumentChange("shape", "x", f"f32[{old},16]", f"f32[{new},16]", at) for old, new in pairwise(sizes)]


@pytest.mark.parametrize(
    ("sizes", "found"),
    [((1008, 1176, 1344, 1512, 1680), 1), ((64, 256, 128, 512, 1024), 0), ((64, 128, 256, 512, 1024), 0)],
)
def test_however_round_sizes_are_those_that_grow_by_as_much_each_time_are_not_chosen(
    sizes: tuple[int, ...], found: int
) -> None:
    """A backtest fits on all weeks so far; buckets come in any order."""
    story, changes = Jitted(), sized(*sizes)
    for turn in range(150):
        with story.step("step"):
            if not turn % 30:
                story.made(*changes[turn // 30 - 1 : turn // 30] if turn else [], versions=turn // 30)
            story.execute("step", 5, story.call)
            story.spend(5)
    told = story.found("recompile")
    assert [one.count for one in told] == [4] * found
    for one in told:
        assert one.advice.startswith("x is longer each time, and each length has a program of its own")


@pytest.mark.parametrize(("later", "found"), [(0, 0), (6, 1)])
def test_sizes_that_lines_before_the_loop_call_for_once_are_chosen_and_no_last_batch(later: int, found: int) -> None:
    """``for size in (120, 1): predict(images[:size])`` warms both up; a pass over all images ends with fewer."""
    story = Jitted()
    warm = story.line(21, "predict(model, images[:size])", func="warm_up", outer=(80,), loops=(20,))
    code, name = story.line(12, "def predict(model, images):", func="predict"), story.text("predict")
    for nth, changes in enumerate(([], sized(120, 1))):
        start = story.now
        story.spend(300)
        story.emit(JitCompile(start, story.now - start, name, warm, code, versions=nth, changes=changes))
        story.execute("predict", 2, warm)
        story.spend(3)
        for _ in range(0 if nth else later):
            story.execute("predict", 2, warm)
            story.spend(3)
    for turn in range(40):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(5)
    told = story.found("recompile")
    assert [one.advice.partition(" rows")[0] for one in told] == ["Pad the last batch to 120"] * found


def test_a_list_that_is_joined_for_a_call_grows_with_its_argument_and_is_told_once() -> None:
    story, joins = Jitted(), 0
    for turn in range(60):
        with story.step("step"):
            if not turn % 5:
                stack, start = story.text("stack"), story.now
                change = [ArgumentChange("structure", "args", "", f"args[{turn // 5}] f32[16]")] if turn else []
                story.spend(100)
                made = JitCompile(start, story.now - start, stack, story.call, versions=turn // 5, changes=change)
                story.emit(made)
                joins += bool(turn)
                story.made(*sized(turn // 5, turn // 5 + 1) if turn else [], versions=turn // 5)
            story.execute("step", 5, story.call)
            story.spend(5)
    (finding,) = story.found("recompile")
    assert (finding.count, finding.cost_s) == (2 * joins, pytest.approx(joins * 0.5))
    assert "stack joins a list of arrays, outside of any jitted function" in finding.cause
    assert "compiled for each length, too: step at train.py:40: 22 programs" in finding.cause


@pytest.mark.parametrize(("idle", "found"), [(1, 0), (120, 1)])
def test_a_read_for_the_log_gains_the_idle_time_it_causes_and_not_what_the_device_works(idle: int, found: int) -> None:
    """The host runs 60 steps ahead; each fiftieth it waits for all of them, and hands the next one over at once."""
    story = Jitted()
    log = story.line(44, 'print(f"loss {float(loss):.3f}")', outer=(90,), loops=(38,))
    for turn in range(600):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 3, story.call)
            story.spend(1)
            if turn % 50 == 49:
                story.read(log, NUMBER)
                story.spend(idle)
    told = story.found("transfer")
    assert [one.place.line for one in told] == [44] * found
    for one in told:
        assert one.gain_s <= one.cost_s <= 12 * 0.121


@pytest.mark.parametrize(("ran", "found"), [(8, 1), (5, 0), (1, 0)])
def test_where_a_line_runs_operations_and_calls_a_jitted_function_their_number_tells_what_takes_long(
    ran: int, found: int
) -> None:
    """``image.at[:, col].add(beamform(...))``: eight operations for each call, each of which Python dispatches.

    Of fewer, as of a key that is looked up, 0.2 ms each are not felt, whatever the call takes.
    """
    story = Jitted()
    for turn in range(400):
        with story.step("step"):
            if turn == 0:
                story.emit(Look(story.now, 400_000_000, story.call, "python"))
                story.made()
            story.execute("step", 0.1, story.call)
            story.emit(Look(story.now, 5_000_000, story.call, "python"))
            story.spend(5)
    story.emit(OutsideOperations(story.now, story.text("scatter-add"), 400 * ran, story.call))
    told = story.found("op_by_op")
    assert [one.place.line for one in told] == [40] * found
    for one in told:
        assert one.cost_s == pytest.approx(400 * ran * 0.0002), "of the 2 s that the line takes"
    (idle,) = (one for one in story.report().accounts if one.what == "idle")
    assert idle.unexplained_s == 0, idle.text


@pytest.mark.parametrize(
    ("took", "code", "found"), [(12, "ndimage.rotate(x)", 1), (2, "ndimage.rotate(x)", 0), (12, "np.asarray(x)", 0)]
)
def test_host_work_that_the_device_hides_is_told_where_it_is_most_of_the_steps(
    took: int, code: str, found: int
) -> None:
    """Images are rotated one by one while the last batch trains; NumPy may wait for the device without a word."""
    story = Jitted()
    rotate = story.line(47, code, func="augment", outer=(39, 90), loops=(0, 38))
    for turn in range(200):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.emit(Look(story.now, took * 1_000_000, rotate, "python"))
            for _ in range(took):  # a step's work takes as long as the host's: no gap is seen
                story.spend(1)
            story.execute("step", 4, story.call)
            story.spend(1)
    assert [one.also[0].line for one in story.found("idle_gap")] == [39] * found


def test_the_time_after_the_last_program_begins_where_that_ended_however_short_it_was() -> None:
    """XLA runs small programs within the call: they take no time that could be seen."""
    story = Jitted()
    for turn in range(50):
        with story.step("step"):
            if turn in (0, 49):
                story.made(versions=turn // 49)
            story.execute("step", 0, story.call)
            story.spend(2)
    story.spend(1000)
    story.finish()
    accounts = {one.what: one for one in story.report().accounts}
    assert accounts["after"].total_s == pytest.approx(1.002)
    assert accounts["idle"].total_s == pytest.approx(49 * 0.002)


def test_a_program_that_was_asked_for_ahead_is_its_functions_and_no_operation_outside_of_jit() -> None:
    """``step.lower(...).compile()`` before the loop: no call needs it."""
    story = Jitted()
    ahead = story.line(30, "step.lower(state, batch).compile()", outer=(90,))
    start = story.now
    story.spend(4000)
    story.emit(JitCompile(start, story.now - start, story.text("step"), ahead, known=False))
    story.finish()
    section = story.report().jax
    assert [(one.name, one.place.line) for one in section.functions] == [("step", 30)]
    assert "Operations outside" not in section.charges[0].why


@pytest.mark.parametrize(("ms", "turns", "found"), [(3_000, 40, 1), (200, 40, 0), (3_000, 120, 0)])
def test_sizes_that_were_chosen_are_told_where_few_calls_share_what_takes_most_of_the_run(
    ms: float, turns: int, found: int
) -> None:
    """A collate function rounds up to the next multiple of eight: nearly each batch has another number of rows."""
    story, sizes = Jitted(), (400, 336, 440, 384, 368, 424, 408, 392)
    for turn in range(turns):
        with story.step("step"):
            if turn < len(sizes):
                story.made(*sized(*sizes[turn - 1 : turn + 1]) if turn else [], ms=ms, versions=turn)
            story.execute("step", 5, story.call)
            story.spend(100)
    told = story.found("recompile")
    assert [one.count for one in told] == [7] * found
    for one in told:
        assert "to one size (440 was the largest so far)" in one.advice


@pytest.mark.parametrize(("change", "found"), [((32, 40, 24), 0), ((24, 40, 24), 1), ((32, 37, 24), 1)])
def test_two_lengths_that_are_round_and_share_many_calls_were_chosen(change: tuple[int, int, int], found: int) -> None:
    """Clips are short or long. A last batch is smaller, and a length that is not round comes with the data."""
    story, shape = Jitted(), "f32[{},{},{}]".format
    batch = change[0]
    for turn in range(60):
        with story.step("step"):
            if turn == 0:
                story.made()
            if turn == 4:
                at = 1 if batch == 32 else 0
                differs = ArgumentChange("shape", "x", shape(32, 24 if at else 40, 24), shape(*change), at)
                story.made(differs, ms=9_000, versions=1)
            story.execute("step", 5, story.call)
            story.spend(20)
    assert len(story.found("recompile")) == found


@pytest.mark.parametrize(("versions", "cost_s"), [(0, 4.0), (3, 9.0)])
def test_operations_outside_of_jit_cost_no_first_compilation_for_one_function_has_that_too(
    versions: int, cost_s: float
) -> None:
    """20,000 operations of 0.2 ms in a loop that does nothing else, and 5 s in which they were compiled."""
    story = Jitted()
    line, name = story.line(52, "h = jnp.tanh(h @ w)", func="rollout", outer=(41, 90)), story.text("tanh")
    story.made()
    story.execute("step", 5, story.call)
    start = story.now
    story.spend(5_000)
    story.emit(JitCompile(start, story.now - start, name, line, versions=versions))
    story.emit(Look(story.now, 9_000_000_000, line, "python"))
    story.spend(4_000)
    story.emit(OutsideOperations(story.now, name, 20_000, line))
    (found,) = story.found("op_by_op")
    assert found.cost_s == pytest.approx(cost_s, rel=0.01)


@pytest.mark.parametrize(("contents", "once"), [(1, True), (20, False)])
def test_what_is_computed_of_the_same_data_in_each_turn_is_to_be_computed_once(contents: int, once: bool) -> None:
    """A volume is brought to the device and scaled for each batch that is cut from it; or those of many patients."""
    story = Jitted()
    brings = story.line(12, "x = jnp.asarray(self.volume) / 4096", func="Scans.cut", outer=(41, 90), loops=(0, 40))
    what = story.text("i16[64,512,512]")
    for turn in range(60):
        with story.step("step"):
            if turn == 0:
                story.made()
            again = turn >= 2 * contents  # which is seen when an array comes for the third time
            story.put(
                TransferToDevice(story.now, 1_000_000, 1 << 25, stack=brings, again=again, what=what if again else 0)
            )
            story.emit(Look(story.now, 40_000_000, brings, "python"))
            story.spend(40)
            story.emit(OutsideOperations(story.now, story.text("div"), 30, brings))
            story.execute("step", 5, story.call)
            story.spend(6)
    (found,) = story.found("op_by_op")
    assert ("Do once, before the loop" in found.advice) is once
    assert ("train.py:12 brings to the device again and again (i16[64,512,512])" in found.advice) is once
    assert "under jax.jit" in found.advice
