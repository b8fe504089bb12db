"""Uploads: the same data in each step, new data that the device waits for, and uploads that are as they should be."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from story import MS, Story

from xlaprof.analysis.model import Finding
from xlaprof.analysis.occurrences import occurrences
from xlaprof.analysis.run import Run
from xlaprof.events import Event, Execute, Sample, Source, TransferToDevice
from xlaprof.vocabulary import Vocabulary

from .test_jitted import Jitted

TABLE = "f32[30000,48]"


def uploading(*, again: bool, ms: float = 6, steps: int = 20, tid: int = 1, device: float = 10) -> Story:
    """Steps that each bring something to the device, and then wait for what they compute."""
    story = Story()
    barrier, upload = story.line(20, "torch_xla.sync()"), story.line(9, "keys = self.keys.to(device)", "Prior.forward")
    for number in range(steps):
        with story.step():
            story.trace(1)
            story.upload(ms, upload, tid, TABLE if again and number else "")
            story.barrier(barrier, device=device, compile=0)
            story.wait()
    story.finish()
    return story


def of(story: Story) -> list[Finding]:
    return story.findings("upload")


def test_a_table_that_comes_again_in_each_step_is_a_finding() -> None:
    story = uploading(again=True)
    [finding] = of(story)
    assert (finding.place.line, finding.count, finding.operation) == (9, 19, "the same data")
    assert finding.cost_s == pytest.approx(19 * 0.006)
    assert finding.gain_s == pytest.approx(19 * 0.006, rel=0.1)  # the device waits for it
    assert f"The same data ({TABLE}) is brought to the device here 19 times" in finding.cause
    assert finding.advice.startswith("Register it in the module's __init__ (self.register_buffer(...))")
    assert occurrences([story.events], story.run(), finding).total == 19  # type: ignore[arg-type]
    assert finding.severity == "high"


def test_outside_of_a_module_it_is_to_be_brought_before_the_loop() -> None:
    story = Story()
    line = story.line(9, "mask = torch.tensor(rows, device=device)")
    barrier = story.line(20, "torch_xla.sync()")
    for number in range(20):
        with story.step():
            story.upload(3, line, again=TABLE if number else "")
            story.barrier(barrier, device=10, compile=0)
    [finding] = of(story)
    assert finding.advice == "Bring it to the device once, before the loop, and use that in the loop."


def lengths(different: int) -> Story:
    """Steps that each bring a length as a tensor of one number, of which there are so many different ones."""
    story = Story()
    line, barrier = story.line(9, "length = torch.tensor([prefix(step)]).to(device)"), story.line(20, "sync()")
    for number in range(20):
        with story.step():
            story.upload(3, line, again="i64[1]" if number >= different else "", size=8)
            story.barrier(barrier, device=10, compile=0)
    return story


def test_a_number_that_varies_comes_again_by_chance_and_one_that_does_not_is_a_finding() -> None:
    assert not of(lengths(different=4))
    [finding] = of(lengths(different=1))
    assert finding.count == 19


def test_in_the_words_of_jax_with_the_argument() -> None:
    story = uploading(again=True)
    words = Vocabulary(as_buffer="", put_once="Put it once", put_once_code="{name} = put({name})")
    named = story.text(f"table {TABLE}")
    events: list[Event] = [
        msgspec.structs.replace(one, what=named) if isinstance(one, TransferToDevice) and one.what else one
        for one in story.events
    ]
    [finding] = Run().feed_all([events[0], Source(0, "jax", words), *events[1:]]).report("run.log").findings
    assert (finding.advice, finding.remedy) == ("Put it once.", "table = put(table)")


def test_new_data_for_which_the_device_idles_is_to_be_brought_ahead() -> None:
    [finding] = of(uploading(again=False))
    assert (finding.place.line, finding.count, finding.operation) == (9, 20, "new data")
    assert "MpDeviceLoader" in finding.advice
    assert finding.gain_s == pytest.approx(0.12, rel=0.1)


def overlapped() -> Story:
    """A new batch is brought while the device still works on the step before."""
    story = Story()
    barrier, upload = story.line(20, "torch_xla.sync()"), story.line(9, "x = x.to(device)")
    for _ in range(20):
        with story.step():
            story.trace(1)
            story.upload(6, upload)
            story.barrier(barrier, device=30, compile=0)
    story.finish()
    return story


def actions() -> Story:
    """Each step of an environment brings its action, five of which are in a step."""
    story = Story()
    barrier, upload = story.line(20, "torch_xla.sync()"), story.line(9, "a = torch.from_numpy(action).to(device)")
    for _ in range(20):
        with story.step():
            for _ in range(5):
                story.upload(0.4, upload)
            story.barrier(barrier, device=1, compile=0)
            story.wait()
    story.finish()
    return story


def twice_only() -> Story:
    """A table is brought again once, for the evaluation."""
    story = Story()
    barrier, upload = story.line(20, "torch_xla.sync()"), story.line(9, "keys = keys.to(device)")
    for number in range(20):
        with story.step():
            if number in (3, 12):
                story.upload(20, upload, again=TABLE if number == 12 else "")
            story.barrier(barrier, device=10, compile=0)
    return story


def within_fallbacks() -> Story:
    """What an operation on the CPU gives back is the same in each step: the fallback is the finding."""
    story = Story()
    barrier, line = story.line(20, "torch_xla.sync()"), story.line(9, "torch.linalg.eigvals(w)")
    for number in range(20):
        with story.step():
            start = story.now
            story.upload(6, line, again=TABLE if number else "")
            story.replay_fallback(line, "aten::linalg_eigvals", start)
            story.barrier(barrier, device=10, compile=0)
    return story


@pytest.mark.parametrize(
    "make",
    [
        lambda: uploading(again=False, ms=0.9, device=1),
        lambda: uploading(again=True, ms=0.1),
        lambda: uploading(again=True, tid=2),
        lambda: uploading(again=False, tid=2),
        overlapped,
        actions,
        twice_only,
        within_fallbacks,
    ],
    ids=[
        "a small batch",
        "a number",
        "in a thread",
        "a batch in a thread",
        "overlapped",
        "actions",
        "twice only",
        "in fallbacks",
    ],
)
def test_uploads_that_are_as_they_should_be_are_none(make: Callable[[], Story]) -> None:
    assert of(make()) == []


def test_of_a_line_that_brings_a_batch_and_a_table_only_the_table_counts() -> None:
    story = Story()
    barrier, line = story.line(20, "torch_xla.sync()"), story.line(9, "w = step(w, table, batch)")
    for number in range(20):
        with story.step():
            story.upload(4, line, again=TABLE if number else "")
            story.upload(4, line)
            story.barrier(barrier, device=10, compile=0)
            story.wait()
    story.finish()
    [finding] = of(story)
    assert (finding.operation, finding.count) == ("the same data", 19)
    assert 0.5 * finding.cost_s < finding.gain_s <= 1.1 * finding.cost_s


def test_two_tables_of_one_function_are_one_finding() -> None:
    story = Story()
    barrier = story.line(20, "torch_xla.sync()")
    lines = [story.line(line, f"t = self.{line}.to(device)", "Prior.forward") for line in (9, 10)]
    for number in range(20):
        with story.step():
            for line in lines:
                story.upload(3, line, again=TABLE if number else "")
            story.barrier(barrier, device=10, compile=0)
    [finding] = of(story)
    assert (finding.place.line, [one.place.line for one in finding.parts]) == (9, [10])
    assert finding.cost_s == pytest.approx(2 * 19 * 0.003)


def test_gaps_that_samples_saw_at_the_same_call_are_a_part_of_it() -> None:
    story = Story()
    line = story.line(9, "loss = step(params, table)")
    for number in range(20):
        with story.step("step"):
            start = story.now
            story.spend(30)
            story.emit(Sample(t=start, dur=30 * MS, stack=line, state="call"))
            story.upload(15, line, again=TABLE if number else "")
            story.execute("step", 5, line)
            story.wait()
    story.finish()
    found = [one for one in story.findings() if one.place.line == 9]
    assert [one.kind for one in found] == ["upload"]
    assert {one.kind for one in found[0].parts} <= {"idle_gap"}
    assert Execute in {type(one) for one in story.events}


def test_uploads_told_together_count_each() -> None:
    story = uploading(again=True)
    events = [
        msgspec.structs.replace(one, calls=8) if isinstance(one, TransferToDevice) else one for one in story.events
    ]
    run = Run().feed_all(events)
    [finding] = run.report("run.log").findings
    assert finding.count == 8 * 19
    assert occurrences([events], run, finding).total == 8 * 19  # type: ignore[arg-type]


def test_the_totals_of_several_ranks_add_up() -> None:
    first, second = uploading(again=True).run(), uploading(again=True).run()
    (key,) = [key for key in first.sent if key[1]]
    alone = first.sent[key].count
    first.merge(second)
    assert sum(tally.count for (_, again), tally in first.sent.items() if again) == 2 * alone
    assert [first.names.text(what) for _, what in first.came_again] == [TABLE]


def bringing(first: str, second: str) -> Jitted:
    """A search of similar songs: the table of their features is an argument of the step, and every fourth turn a score
    is computed of it outside of jitted functions, with a short row that comes again, too. An upload goes on when the
    next call begins another."""
    story = Jitted()
    score = story.line(55, "return (table @ row).max()", func="score", outer=(44, 90), loops=(0, 38))
    story.call = story.line(40, "row = step(row, table)", func="main", outer=(90,), loops=(38,))
    name, kind, row = story.text(first), story.text(second), story.text("f32[48]")
    for turn in range(60):
        with story.step("step"):
            if turn == 0:
                story.made()
            brought = [(story.call, name, 5_760_000, 40)]
            if turn % 4 == 3:
                brought += [(score, kind, 5_760_000, 6), (score, row, 192, 0)]
            for stack, what, size, ms in brought:
                story.emit(TransferToDevice(story.now, ms * MS, size, stack=stack, again=turn > 0, what=what))
            story.execute("step", 5, story.call)
            story.spend(20)
    story.finish()
    return story


def test_one_array_that_two_lines_bring_again_is_one_finding_and_costs_no_more_than_the_run() -> None:
    [finding] = of(bringing(f"table {TABLE}", TABLE))
    assert (finding.place.line, [one.line for one in finding.also]) == (40, [55])
    assert finding.count == 59 + 2 * 15
    assert finding.cost_s == pytest.approx(59 * 0.02 + 0.02 + 15 * 0.006, rel=0.05)
    assert f"The same data (table {TABLE}) is brought to the device here 59 times" in finding.cause
    assert "and 30 times at train.py:55: 90 ms" in finding.cause
    assert finding.remedy.startswith("table = ") or not finding.remedy


def test_two_arrays_are_two_findings_each_with_the_most_of_what_comes_again() -> None:
    first, second = sorted(of(bringing(f"table {TABLE}", "f32[48,30000]")), key=lambda one: one.place.line)
    assert f"(table {TABLE})" in first.cause
    assert "(f32[48,30000])" in second.cause
    named = of(bringing(f"table {TABLE}", f"songs {TABLE}"))
    assert [one.place.line for one in named] == [40, 55]
