"""The device idles again and again while the host does something else: what that is, where, and what it cost."""

import pytest
from story import MS, Story, clean

from xlaprof.analysis.occurrences import occurrences
from xlaprof.events import Batches, Hole, Look, Scope

from .compiling import Compiling
from .test_gaps import Watched, idle_gaps


def test_preprocessing_in_a_scope_that_starves_the_device() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    enter = story.line(11, 'with xlaprof.Trace("tokenize"):')
    for _ in range(20):
        with story.step():
            with story.scope("tokenize", enter):
                story.spend(25)
            story.trace(2)
            story.barrier(barrier, 10)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.operation, finding.place.line) == ("idle_gap", "tokenize", 11)
    assert finding.count == 19
    assert finding.cost_s == pytest.approx(19 * 0.015)  # for 10 of its 25 ms the device still works
    assert "'tokenize'" in finding.cause


def test_plain_python_between_two_lines_is_named_by_them() -> None:
    story = Story()
    sync, to = story.line(20, "xr.sync()"), story.line(24, "batch = augment(batch).to(device)")
    for n in range(20):
        with story.step():
            if n:
                story.python(30, sync, to)
            story.trace(2)
            story.barrier(sync, 10)
    (finding,) = story.findings()
    assert finding.kind == "idle_gap"
    assert "train.py:20-24" in finding.cause
    assert finding.place.line == 20


def test_a_hole_that_goes_back_to_the_head_of_the_loop_is_shown_there() -> None:
    story = Story()
    sync = story.line(5, "xr.sync()", func="barrier", outer=(20,))
    to = story.line(3, "return x.to(device)", func="upload", outer=(12,))
    for n in range(20):
        with story.step():
            if n:
                story.python(30, sync, to)
            story.barrier(sync, 10)
    (finding,) = story.findings()
    assert finding.place.line == 12
    assert "train.py:20 -> 12" in finding.cause


def test_a_transfer_in_a_hole_says_a_line_nearer_to_what_ran() -> None:
    story = Story()
    sync, copy, to = story.line(41, "xr.sync()"), story.line(26, "arr = images.cpu()"), story.line(30, "arr.to(device)")
    for _ in range(10):
        with story.step():
            story.barrier(sync, 10)
            start = story.now
            story.read(copy)
            story.spend(60)
            story.emit(Hole(t=start, dur=story.now - start, before=sync, after=to))
            story.upload(1, to)
    story.finish()
    (gap,) = story.findings("idle_gap")
    assert gap.place.line == 26
    assert "train.py:26-30" in gap.cause


def test_garbage_is_reported_at_the_line_that_collects_it() -> None:
    story = Story()
    barrier, collect = story.line(20, "xr.sync()"), story.line(43, "gc.collect()")
    for _ in range(10):
        with story.step():
            story.barrier(barrier, 10)
            with story.scope("logging"):
                story.gc(40, collect)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line) == ("idle_gap", 43)


def test_garbage_that_the_program_collects_in_each_turn_counts_beside_a_compile_too() -> None:
    """Every turn compiles for one more row, and collects: what Python chose to collect beside a compile is no habit."""
    for code, found in (("gc.collect()", True), ("collect(generation=2)", True), ("rows = buffer.collect()", False)):
        story = Story()
        barrier, collect = story.line(20, "xr.sync()"), story.line(43, code)
        for turn in range(10):
            with story.step():
                story.barrier(barrier, 10, graph=f"rows {turn}", compile=100)
                story.gc(40, collect)
        story.finish()
        garbage = [one for one in story.findings("idle_gap") if one.operation == "garbage collection"]
        assert [one.place.line for one in garbage] == [43] * found, code
        if found:
            assert "once in many turns" in garbage[0].advice
            assert garbage[0].cost_s == pytest.approx(9 * 0.030)  # the device works for 10 ms of each
            assert garbage[0].rhythm == "every step"


def test_garbage_that_the_program_collects_keeps_compiled_code_waiting_without_a_device() -> None:
    for ms, count in ((15, 1), (0.6, 0)):
        run = Compiling()
        run.compile("0/0", ms=100)
        collect = run.story.line(43, "gc.collect()")
        for _ in range(30):
            with run.story.step():
                run.story.spend(20)
                run.story.gc(ms, collect)
                run.story.gc(ms)  # that Python chose
        found = run.findings("idle_gap")
        assert len(found) == count
        if found:
            assert (found[0].operation, found[0].place.line, found[0].count) == ("garbage collection", 43, 30)
            assert found[0].cost_s == pytest.approx(0.45)
            happened = occurrences([run.story.events], run.story.run(), found[0])
            assert happened.total == 30


def test_waiting_for_data_and_garbage_collection_starve_the_device_too() -> None:
    story = Story()
    barrier, loader = story.line(20, "xr.sync()"), story.line(10, "for batch in loader:")
    for _ in range(20):
        story.data(20, loader)
        with story.step():
            story.barrier(barrier, 10)
            story.gc(25)
    found = {finding.operation: finding for finding in story.findings()}
    assert set(found) == {"data wait", "garbage collection"}
    assert found["data wait"].place.line == 10
    assert "workers" in found["data wait"].advice
    assert "gc.freeze" in found["garbage collection"].advice


def test_one_long_pause_is_no_habit() -> None:
    story = clean()
    with story.scope("checkpoint"):
        story.spend(400)
    assert clean(story=story).findings() == []


def test_a_wait_at_the_begin_of_each_epoch_counts_beside_a_compile_too() -> None:
    """Every other epoch the model grows and is compiled again: its loader begins as slowly."""
    story = Story()
    barrier, loader = story.line(64, "torch_xla.sync()"), story.line(61, "for x, y in loader:")
    for epoch in range(12):
        for batch in range(100):
            story.data(0.1 if batch else 14, loader)
            with story.step():
                story.trace(1)
                story.barrier(barrier, 1, graph=f"stage {epoch // 2}", compile=400)
    found = {finding.operation: finding for finding in story.findings()}
    assert found["data wait"].place.line == 61
    assert found["data wait"].cost_s > 10 * 0.010
    assert "from pass to pass" in found["data wait"].advice


def test_a_loader_that_is_slower_than_the_device_gains_nothing_from_going_on() -> None:
    """Eight batches are loaded ahead. So every eighth step waits, and the loader's thread never rests."""
    story = Story()
    barrier, loader = story.line(64, "torch_xla.sync()"), story.line(61, "for x, y in loader:")
    for batch in range(400):
        began = story.now
        story.data(0.1 if batch % 8 else 160, loader)
        with story.step():
            story.trace(1)
            story.barrier(barrier, 10)
        story.emit(Scope(name=story.text("cpu_loader.next"), t=began, dur=story.now - began, tid=2))
    (found,) = (finding for finding in story.findings() if finding.operation == "data wait")
    assert found.rhythm == "every 8 steps"
    assert "Make a sample cheaper" in found.advice
    assert "from pass to pass" not in found.advice


def _drawn(first: float, each: float) -> Compiling:
    """A step of 20 ms of compiled code without a device, 30 times, each after the wait for its batch, in ms."""
    run = Compiling()
    run.compile("0/0", ms=100)
    loader, parsed = run.story.line(50, "for rows in loader:"), run.story.line(12, "def __getitem__(self, i):")
    run.story.emit(Batches(run.story.now, loader, parsed, collated=False))
    for n in range(30):
        with run.story.step():
            run.story.data(each if n else first, loader)
            run.story.spend(20)
    return run


def test_compiled_code_without_a_device_waits_for_what_draws_its_batches() -> None:
    run = _drawn(10, 10)
    (finding,) = run.findings()
    assert (finding.kind, finding.operation, finding.count) == ("idle_gap", "data wait", 30)
    assert finding.place.line == 12
    assert [place.line for place in finding.also] == [50]
    assert finding.cost_s == pytest.approx(0.3)
    assert "300 ms in 30 waits" in finding.cause
    assert "more DataLoader workers" in finding.advice
    data = next(account for account in run.story.report().accounts if account.what == "data")
    assert (data.explained_s, data.normal_s) == (pytest.approx(0.3), 0)


def test_the_start_of_workers_and_short_waits_are_no_finding() -> None:
    assert _drawn(2000, 0.1).findings() == []
    assert _drawn(2, 2).findings() == []


def test_workers_that_are_started_for_each_of_many_passes_are_advised_to_stay() -> None:
    """Twelve passes of six batches: each waits 90 ms for its first one, and 5 ms for the others."""
    for workers, words in ((2, "its workers (2) are started anew in each of 12 passes"), (0, "or load ahead")):
        story = Story()
        draws, barrier = story.line(8, "for x, y in loader:"), story.line(12, "xr.sync()")
        collate = story.line(30, "return torch.stack(rows)", func="collate")
        story.emit(Batches(story.now, draws, collate))
        for step in range(72):
            with story.step():
                begins, since = step % 6 == 0, story.now
                story.data(90 if begins else 5, draws)
                if begins and workers:
                    story.emit(Batches(since, draws, collate, workers=workers, dur=story.now - since))
                story.trace(1)
                story.barrier(barrier, 2)
                story.wait()
        story.finish()
        (finding,) = story.findings("idle_gap")
        assert words in finding.advice
        assert finding.place.line == (8 if workers else 30)


@pytest.mark.parametrize(("ms", "steps", "pays"), [(4, 60, False), (4, 1500, True), (25, 60, True)])
def test_workers_are_advised_where_they_pay(ms: float, steps: int, pays: bool) -> None:
    """To start them takes a second or so, and to hand a batch over some ms."""
    story = Story()
    draws, barrier = story.line(8, "for clip in loader:"), story.line(12, "xr.sync()")
    for _ in range(steps):
        story.data(ms, draws)
        story.trace(1)
        story.barrier(barrier, 2)
        story.wait()
    story.finish()
    (finding,) = story.findings("idle_gap")
    assert finding.operation == "data wait"
    assert ("more DataLoader workers" in finding.advice) == pays
    assert ("does not pay" in finding.advice) != pays


@pytest.mark.parametrize(("looks", "line"), [((21, 21, 21, 21), 21), ((21, 21, 24, 24), 24), ((21,), 24)])
def test_what_few_looks_agree_on_makes_the_batch_not_the_line_that_pads(looks: tuple[int, ...], line: int) -> None:
    """A collate function that decodes at line 21, with a library, and pads at line 24, where its size is found."""
    story = Story()
    draws, barrier = story.line(8, "for clip in loader:"), story.line(12, "xr.sync()")
    pads = story.line(24, "return F.pad(rows, (0, room))", func="collate")
    story.emit(Batches(story.now, draws, pads))
    codes = {21: "decode(rows)", 24: "return F.pad(rows, (0, room))"}
    seen = {at: story.line(at, code, func="collate", outer=(8,)) for at, code in codes.items()}
    for step in range(60):
        began = story.now
        story.data(25, draws)
        if step < len(looks):
            story.emit(Look(began, 90 * MS, seen[looks[step]], state="data"))
        story.trace(1)
        story.barrier(barrier, 2)
        story.wait()
    story.finish()
    (finding,) = story.findings("idle_gap")
    assert finding.place.line == line


@pytest.mark.parametrize("state", ["data", "python"])
def test_what_two_loops_call_at_one_line_is_one_finding_with_the_sum_of_both(state: str) -> None:
    """Tokens are made at one line, for each batch of training, and for an evaluation after every fourth."""
    story = Watched()
    train, evaluate = (story.line(line, "xr.sync()", func="main", loops=(18,)) for line in (20, 30))
    made = [story.line(70, "return np.cumsum(ids)", func="tokens", outer=(line,)) for line in (19, 29)]
    for turn in range(40):
        with story.step():
            story.seen(40, state, made[0])
            story.barrier(train, device=5, dispatch=0, compile=0)
            if turn % 4 == 3:
                story.seen(60, state, made[1])
                story.barrier(evaluate, device=5, dispatch=0, compile=0)
    (found,) = idle_gaps(story)
    assert (found.place.line, found.count, found.parts) == (70, 49, ())
    assert "in 49 gaps" in found.cause
    assert [one.line for one in found.also] == [19, 29]
    assert found.cost_s == pytest.approx(39 * 0.035 + 10 * 0.055, rel=0.1)
    assert found.gain_s == pytest.approx(found.cost_s, rel=0.1)


@pytest.mark.parametrize(
    ("code", "loop", "words"),
    [
        ("angle = self.dice.uniform(-a, a)", 68, "rng.uniform(..., size=n)); or move this work out of the loop"),
        ("angle = dice.uniform(-a, a, size=len(image))", 68, "operations on whole arrays in place of the loop at tra"),
        ("rows[i] = parse(lines[i])", 68, "operations on whole arrays in place of the loop at train.py:68"),
        ("angles = dice.uniform(-a, a)", 0, "Move this work out of the loop or"),
        ("angles = dice.uniform(-a, a)", 18, "Move this work out of the loop or"),  # the barrier's own
    ],
)
def test_what_a_loop_over_elements_does_is_to_be_done_for_all_of_them_at_once(code: str, loop: int, words: str) -> None:
    """Each image of a batch is turned by an angle that the host draws for it."""
    story = Watched()
    barrier = story.line(20, "xr.sync()", func="main", loops=(18,))
    func, outer = ("main", ()) if loop == 18 else ("turned", (19,))
    drawn = story.line(19 if loop == 18 else 70, code, func=func, outer=outer, loops=(loop, 18)[: 1 + len(outer)])
    for _ in range(20):
        with story.step():
            story.seen(40, "python", drawn)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    (found,) = idle_gaps(story)
    assert words in found.advice
