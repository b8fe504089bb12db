"""Long gaps in which the host was seen: what is blamed, by name, and which of it is a habit worth a finding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from story import MS, Story, clean

from xlaprof.analysis.model import Finding
from xlaprof.analysis.timeline import host, occasions
from xlaprof.analysis.timeline.columns import idle as idle_columns
from xlaprof.analysis.timeline.columns.intervals import table
from xlaprof.analysis.timeline.idle import HoleSpan, IdleBlame, SampleSpan, Seen
from xlaprof.analysis.timeline.occasions import Occasions, rhythm
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.analysis.timeline.window import stretched
from xlaprof.events import Hole, Look, Sample
from xlaprof.recording.stack_sampler import READER


class Watched(Story):
    """A story whose long gaps are looked into."""

    def seen(self, ms: float, state: str, stack: int, holder: str = "", at: int = 0, until: float = 1.0) -> None:
        """The host does something for ``ms``, and is looked at for the first part of it."""
        start = self.now
        self.spend(ms)
        self.emit(Sample(t=start, dur=round(ms * until * MS), stack=stack, state=state, holder=holder, at=at))


def training(story: Watched) -> tuple[int, int, int]:
    """Stacks: the barrier, the operation before a gap and the one after."""
    return story.line(20, "xr.sync()"), story.line(12, "y = model(x)"), story.line(18, "loss.backward()")


def idle_gaps(story: Story) -> list[Finding]:
    story.finish()
    return story.findings("idle_gap")


def test_planted_gaps_are_accounted_for_to_the_nanosecond() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    dataset = story.line(40, "image = decode(path)", func="Photos.__getitem__", outer=(11,))
    writer = story.line(50, "torch.save(state, path)", func="save", outer=(21,))
    sleeper = story.line(60, "time.sleep(0.03)", func="poll", outer=(15,))
    worker = story.line(90, "digest(blob)", func="hash_all")
    for step in range(10):
        with story.step():
            story.seen(40, "data", dataset)
            with story.scope("augment"):
                story.spend(25)
            story.seen(30, "wait", sleeper)
            story.seen(12, "python", story.line(70, "x = crunch(x)", func="crunch", outer=(16,)))
            story.seen(7, "gil", barrier, "hasher", worker)
            story.gc(5)
            story.trace(3)
            story.barrier(barrier, device=10, dispatch=0, compile=0)
            story.seen(20 if step % 2 else 10, "checkpoint", writer)
    story.finish()
    idle = story.report().idle
    ms = {cause: round(seconds * 1e9) for cause, seconds in idle.causes}
    # The first step's host work lies before the first execution; of the checkpoints the device is busy for 10 ms.
    assert ms == {
        "data wait": 9 * 40 * MS,
        "scope augment": 9 * 25 * MS,
        "waiting train.py:60": 9 * 30 * MS,
        "python train.py:70": 9 * 12 * MS,
        "waiting for the interpreter's lock": 9 * 7 * MS,
        "garbage collection": 9 * 5 * MS,
        "tracing": 9 * 3 * MS,
        "checkpoint": 4 * 10 * MS,
    }


def test_each_activity_is_one_finding_at_the_line_that_does_it() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    dataset = story.line(40, "image = decode(path)", func="Photos.__getitem__", outer=(11,))
    writer = story.line(50, "torch.save(state, path)", func="save", outer=(21,))
    for step in range(20):
        with story.step():
            story.seen(40, "data", dataset)
            story.barrier(barrier, device=10, dispatch=0, compile=0)
            if step % 4 == 3:
                story.seen(90, "checkpoint", writer)
    data, checkpoint = sorted(idle_gaps(story), key=lambda finding: finding.place.line)
    assert (data.place.line, data.rhythm, data.confidence) == (40, "every step", "high")
    assert "waits for its next batch, which is made at train.py:40" in data.cause
    assert (checkpoint.place.line, checkpoint.rhythm) == (50, "every 4 steps")
    assert "saves or loads a checkpoint" in checkpoint.cause


def test_a_function_seen_at_many_lines_is_shown_where_the_loop_calls_it() -> None:
    story = Watched()
    barrier = story.line(20, "xr.sync()", func="main")
    for _ in range(8):
        with story.step():
            for line in (101, 102, 103, 104):
                story.seen(6, "python", story.line(line, f"step {line}", func="augment", outer=(15,)))
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    (finding,) = idle_gaps(story)
    assert (finding.place.line, finding.place.func) == (15, "main")
    assert any("seen at train.py:10" in fact for fact in finding.evidence)


@pytest.mark.parametrize(("ms", "line"), [(6, 15), (30, 71)])
def test_one_look_into_each_gap_tells_the_call_and_not_the_line(ms: float, line: int) -> None:
    """A loop that computes for 5 ms, then the line that every look finds: 5 ms after the gap's begin."""
    story = Watched()
    barrier, returns = story.line(20, "xr.sync()", func="main"), story.line(71, "return y", func="make", outer=(15,))
    for _ in range(12):
        with story.step():
            story.seen(ms, "python", returns)
            story.barrier(barrier, device=3, dispatch=0, compile=0)
            story.wait()
    (finding,) = idle_gaps(story)
    assert finding.place.line == line
    assert f"{'called ' if line == 15 else ''}at train.py:{line}" in finding.cause


@pytest.mark.parametrize(("looks", "named"), [(6, True), (4, False)])
def test_looks_that_come_at_any_moment_tell_the_line_in_gaps_that_are_looked_into_once(looks: int, named: bool) -> None:
    story = Watched()
    barrier, returns = story.line(20, "xr.sync()", func="main"), story.line(71, "return y", func="make", outer=(15,))
    filtering = story.line(66, "y = tone(y)", func="make", outer=(15,))
    elsewhere = story.line(90, "y = tone(y)", func="shuffle", outer=(17,))
    for step in range(12):
        with story.step():
            start = story.now
            story.seen(6, "python", returns)
            for stack in (filtering, elsewhere, elsewhere) * (step < looks):
                story.emit(Look(start, 100 * MS, stack, "python"))
            story.barrier(barrier, device=3, dispatch=0, compile=0)
            story.wait()
    (finding,) = idle_gaps(story)
    assert finding.place.line == 15
    assert ("most of it at train.py:66 (y = tone(y))" in finding.cause) is named


def test_what_was_seen_in_part_of_a_hole_takes_all_of_it() -> None:
    hole = HoleSpan(100, 200, 1, 2)
    first, second = Seen(host.OTHER, 7, 0), Seen(host.WAIT, 8, 0)
    found = stretched([SampleSpan(110, 130, first), SampleSpan(140, 160, second)], [hole])
    assert found == [SampleSpan(100, 140, first), SampleSpan(140, 200, second)]


def test_who_has_the_interpreters_lock_is_named() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    worker = story.line(90, "digest(blob)", func="hash_all")
    for _ in range(8):
        with story.step():
            story.seen(30, "gil", barrier, "hasher", worker)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    (finding,) = idle_gaps(story)
    assert "which thread 'hasher' has at train.py:90" in finding.cause
    assert (finding.place.line, finding.confidence) == (90, "medium")


def test_what_a_thread_does_with_the_lock_at_several_lines_is_one_finding_at_the_main_one() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    lines = [story.line(90 + n, f"part {n}", func="hash_all") for n in range(3)]
    for step in range(24):
        with story.step():
            story.seen(9 if step % 3 == 1 else 6, "gil", barrier, "hasher", lines[step % 3])
            story.barrier(barrier, device=1, dispatch=0, compile=0)
            story.wait()
    (finding,) = idle_gaps(story)
    assert (finding.place.line, finding.rhythm, finding.count) == (91, "every step", 23)


def test_the_wait_for_what_a_thread_makes_and_for_its_lock_is_one_finding() -> None:
    story = Watched()
    barrier, _, after = training(story)
    worker = story.line(90, "hashed.append(code)", func="transform")
    getter = story.line(12, "batch = get()")
    for _ in range(12):
        with story.step():
            story.seen(20, "wait", getter, "reader", worker)
            story.seen(6, "gil", after, "reader", worker)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
            story.wait()
    (finding,) = idle_gaps(story)
    assert (finding.place.line, finding.operation, finding.confidence) == (90, "interpreter lock", "medium")
    assert "waits at train.py:12 (batch = get()) for thread 'reader', which runs at train.py:90" in finding.cause
    assert "and for the interpreter's lock, which that has" in finding.cause
    assert finding.cost_s == pytest.approx(11 * 26e-3)


def test_the_loaders_thread_that_makes_batches_and_has_the_lock_is_one_finding() -> None:
    story = Watched()
    barrier, _, after = training(story)
    transform = story.line(90, "hashed.append(code)", func="transform")
    for _ in range(12):
        with story.step():
            story.data(20, transform)
            story.seen(6, "gil", after, READER, transform)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
            story.wait()
    (finding,) = idle_gaps(story)
    assert (finding.place.line, finding.operation) == (90, "data wait")
    assert finding.cost_s == pytest.approx(11 * 26e-3)


def test_who_has_the_lock_in_a_librarys_code_is_named_and_who_waits_for_it() -> None:
    story = Watched()
    barrier, _, after = training(story)
    for _ in range(12):
        with story.step():
            story.seen(26, "gil", after, "reader", 0)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    (finding,) = idle_gaps(story)
    assert "waits for the interpreter's lock, which thread 'reader' has: " in finding.cause
    assert finding.place.code == "loss.backward()"


def test_a_thread_that_python_did_not_start_records_for_the_call_that_waits_for_it() -> None:
    """The backward pass runs in a thread of autograd's: nobody can move it into another process."""
    for holder, count in (("Dummy-2", 0), ("reader", 1)):
        story = Watched()
        barrier, before, after = training(story)
        for _ in range(12):
            with story.step():
                story.python(1.5, before, after)
                story.seen(26, "gil", after, holder, 0)
                story.barrier(barrier, device=5, dispatch=0, compile=0)
        assert len(idle_gaps(story)) == count
        (idle,) = (one for one in story.report().accounts if one.what == "idle")
        assert (idle.reason == "the host records operations and hands them over") is not bool(count)


def test_the_loaders_thread_seen_in_libraries_only_is_reported_where_its_batches_are_drawn() -> None:
    """It lets go of the lock in libraries, so that is where a look that waits for the lock mostly finds it."""
    story = Watched()
    barrier, _, after = training(story)
    loop = story.line(8, "for batch in loader:")
    story.data(400, loop)
    for _ in range(12):
        with story.step():
            story.seen(26, "gil", after, READER, 0)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    (finding,) = idle_gaps(story)
    assert f"lock, which thread '{READER}' has while it makes the batches of train.py:8" in finding.cause
    assert (finding.place.line, finding.also[0].code) == (8, "loss.backward()")


def test_the_wait_for_the_lock_is_reported_though_it_is_free_in_many_steps() -> None:
    for state, count in (("gil", 1), ("python", 0)):
        story = Watched()
        barrier, _, after = training(story)
        worker = story.line(90, "hashed.append(code)", func="transform")
        for step in range(60):
            with story.step():
                if step % 7 in (1, 2, 4):
                    story.seen(6, state, after, *(("reader", worker) if state == "gil" else ()))
                story.barrier(barrier, device=5, dispatch=0, compile=0)
                story.wait()
        assert len(idle_gaps(story)) == count


@pytest.mark.parametrize("state", ["torch", "cpu", ""])
def test_a_busy_machine_is_no_finding(state: str) -> None:
    """Kept from a processor, or glimpsed once, at lines that record: everything is slow then."""
    story = Watched()
    barrier, before, after = training(story)
    for _ in range(12):
        with story.step():
            story.python(1.5, before, after)
            story.seen(9, state, after)
            story.trace(8)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    assert idle_gaps(story) == []


def test_scopes_in_which_operations_are_recorded_are_no_finding() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    for _ in range(12):
        with story.step():
            with story.scope("forward"):
                story.trace(10)
            with story.scope("backward"):
                story.trace(20)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    story.finish()
    assert dict(story.report().idle.causes)["scope backward"] == pytest.approx(11 * 0.020)
    assert story.findings("idle_gap") == []


@pytest.mark.parametrize(("after", "found"), [(13, False), (16, True)])
def test_a_scope_with_short_gaps_is_a_finding_where_a_line_stands_between_its_operations(
    after: int, found: bool
) -> None:
    """On a busy machine recording is slow by fits and starts, within a statement and from one to the next."""
    story = Watched()
    barrier = story.line(20, "xr.sync()")
    one, other = story.line(12, "y = model(x)"), story.line(after, "loss = y.mean()")
    for _ in range(30):
        with story.step():
            with story.scope("forward"):
                story.trace(0.7)
                story.python(4, one, other)
                story.trace(0.7)
            story.barrier(barrier, device=2, dispatch=0, compile=0)
            story.spend(2)
    gaps = idle_gaps(story)
    assert [gap.operation for gap in gaps] == ["forward"] * found


def test_one_long_pause_a_few_short_ones_and_the_first_step_are_no_habit() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    slow = story.line(40, "table = build()", func="build", outer=(15,))
    for step in range(20):
        with story.step():
            if step == 5:
                story.seen(900, "python", slow)
            story.barrier(barrier, device=20, dispatch=0, compile=0 if step else 400)
            story.spend(15)
    assert idle_gaps(story) == []


def test_a_clean_training_has_no_finding_however_often_it_is_looked_at() -> None:
    story = Watched()
    clean(20, story)
    assert story.findings("idle_gap") == []


def test_of_a_habit_little_is_kept_however_long_it_lasts() -> None:
    every = Occasions()
    for step in range(0, 1_000_000, 10):
        every.add(step)
    assert every.runs == [[0, 10, 100_000]]
    assert rhythm([every]).text(0) == "every 10 steps"
    odd = Occasions()
    for step in range(10_000):
        odd.add(step * step)
    assert len(odd.runs) <= 64
    assert odd.count == 10_000


@given(st.lists(st.tuples(st.integers(-2, 5), st.integers(1, 40)), max_size=12), st.integers(1, 9))
def test_many_occasions_at_once_are_what_they_are_one_by_one(habits: list[tuple[int, int]], size: int) -> None:
    steps = [0]
    for distance, number in habits:  # now and then backwards, or several in one step
        steps += [max(-1, steps[-1] + distance * nth) for nth in range(number)]
    each, many = Occasions(), Occasions()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(occasions, "_RUNS", 4)  # further runs are only counted
        for step in steps:
            each.add(step)
        for first in range(0, len(steps), size):
            many.add_all(steps[first : first + size])
    assert (many.count, many.missed, many.expected, many.runs) == (each.count, each.missed, each.expected, each.runs)


@given(st.sets(st.integers(0, 400)).map(sorted))
def test_the_rhythm_of_many_steps_is_that_of_each_in_turn(steps: list[int]) -> None:
    each, many = Rhythm(), Rhythm.of(steps)
    for step in steps:
        each.at(step)
    assert all(getattr(many, name) == getattr(each, name) for name in Rhythm.__slots__)


def test_what_comes_in_turns_has_one_rhythm() -> None:
    even, uneven = Occasions(), Occasions()
    for step in range(100):
        (uneven if step % 2 else even).add(step)
    assert rhythm([even, uneven]).text(0) == "every step"


def looked_into(story: Watched, ms: float, hole: tuple[int, int], stack: int, state: str = "python") -> None:
    """Plain Python between two lines, at ``stack`` as a look has found; 0: nobody looked."""
    start = story.now
    story.spend(ms)
    if stack:
        story.emit(Sample(t=start, dur=round(ms * MS), stack=stack, state=state))
    story.emit(Hole(t=start, dur=round(ms * MS), before=hole[0], after=hole[1]))


def test_a_stretch_that_comes_every_step_is_what_was_seen_in_some_of_them() -> None:
    """From a line around the loop to the same line again: what lies between could be any of the loop's others."""
    story = Watched()
    turn, culprit = story.line(24, "loss = step(batch)"), story.line(25, "text = json.dumps(state)")
    for step in range(40):
        with story.step():
            looked_into(story, 4, (turn, turn), culprit if step % 8 == 7 else 0)
            story.barrier(turn, device=1, dispatch=0, compile=0)
    (finding,) = idle_gaps(story)
    assert (finding.place.line, finding.rhythm, finding.count) == (25, "every step", 39)
    causes = dict(story.report().idle.causes)
    assert round(causes["python train.py:25"] * 1e3) == 39 * 3
    assert "python train.py:24" not in causes


def test_between_operations_of_one_statement_the_host_records_though_a_look_found_python_there() -> None:
    """``optimizer.step()`` with many parameters: nothing there can be moved out of the loop."""
    story = Watched()
    update, barrier = story.line(24, "optimizer.step()"), story.line(25, "xr.sync()")
    for step in range(40):
        with story.step():
            looked_into(story, 6, (update, update), update if step % 8 == 7 else 0)
            story.barrier(barrier, device=1, dispatch=0, compile=0)
    assert idle_gaps(story) == []


def test_short_stretches_are_not_what_was_seen_in_long_ones() -> None:
    story = Watched()
    turn, sleeper = story.line(24, "loss = step(batch)"), story.line(26, "time.sleep(0.05)")
    for step in range(40):
        with story.step():
            looked_into(story, 50 if step % 5 == 4 else 1.5, (turn, turn), sleeper if step % 5 == 4 else 0, "wait")
            story.barrier(turn, device=0.5, dispatch=0, compile=0)
    (finding,) = idle_gaps(story)
    assert (finding.place.line, finding.rhythm, finding.count) == (26, "every 5 steps", 8)
    assert round(dict(story.report().idle.causes)["python train.py:24"] * 1e3) == 31


@pytest.mark.parametrize("columns", [False, True])
def test_a_gap_is_of_the_step_that_most_of_it_is_in(columns: bool) -> None:
    """Whether the device is done a little before a step ends or a little after is chance."""
    blame = IdleBlame()
    steps = [(100 * n * MS, 100 * (n + 1) * MS, n, n) for n in range(40)]
    gaps = [(500 * n * MS + (-MS if n % 3 else MS), (500 * n + 60) * MS) for n in range(1, 8)]
    segments = [(start, end, host.DATA, 0) for start, end in gaps]
    if columns:
        stretches = ((gaps, 2), (segments, 4), ([], 4), ([], 3), ([(*step, 0, 0, 0) for step in steps], 7))
        idle_columns.blame(blame, *(table(each, width) for each, width in stretches))
    else:
        blame.blame(gaps, segments, [], [], steps)
    habit = blame.causes[host.DATA].habit
    assert habit is not None
    assert rhythm([habit]).text(0) == "every 5 steps"


def test_a_library_that_imports_its_compiler_when_it_is_first_called_is_no_work_of_each_step() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    wraps = story.line(10, "step = compiled(model)")
    for step in range(10):
        with story.step():
            story.trace(2)
            story.barrier(barrier, device=10, dispatch=0, compile=0)
            story.wait()
        if not step:
            story.seen(3000, "import", wraps)
    assert not idle_gaps(story)
    report = story.report()
    assert ("import", 3.0) in [(name, round(s, 2)) for name, s in report.idle.causes]
    (idle,) = (one for one in report.accounts if one.what == "idle")
    assert "normal: importing modules" in idle.text
    assert idle.unexplained_s == 0


def test_behind_the_last_program_the_main_threads_line_is_named() -> None:
    story = Watched()
    barrier, _, _ = training(story)
    writes, leaves = story.line(90, "json.dump(history, file)"), story.line(0, "", file="at exit")
    for _ in range(5):
        with story.step():
            story.trace(2)
            story.barrier(barrier, device=10, dispatch=0, compile=0)
            story.wait()
    for ms, stack in ((300, writes), (900, leaves)):
        began = story.now
        story.spend(ms)
        story.emit(Look(began, ms * MS, stack, "python"))
    story.finish()
    (after,) = (one for one in story.report().accounts if one.what == "after")
    assert "normal: the device was given nothing more, at exit (900 ms) and train.py:90 (300 ms)" in after.text
