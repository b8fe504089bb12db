"""What is said while the program still runs: once for each cause, when it has become plain."""

from __future__ import annotations

from story import Story

from xlaprof.analysis.early_warnings import EarlyWarnings
from xlaprof.events import Change, DynamoLimit, Guard, Recompile


def heard(story: Story) -> list[str]:
    """The warnings of a recording, in order."""
    warnings = EarlyWarnings()
    return [text for event in story.finish() if (text := warnings.feed(event))]


def test_a_graph_that_grows_is_said_at_its_third_growth_and_once() -> None:
    story = Story()
    read = story.line(12, "print(loss.item())")
    for i in range(8):
        story.compile(f"graph {i}", 50, read, trigger="read", ops=100 + 40 * i)
    (warning,) = heard(story)
    assert "ends at train.py:12 has grown 3 times in a row, to 220 operations" in warning


def test_graphs_of_all_sizes_do_not_grow() -> None:
    story = Story()
    barrier = story.line(12, "xm.mark_step()")
    for i, ops in enumerate([100, 140, 180, 90, 130, 170, 80]):
        story.compile(f"graph {i}", 50, barrier, ops=ops)
    assert heard(story) == []


def test_the_tenth_graph_of_one_cause_is_said_with_its_line_and_what_it_took() -> None:
    story = Story()
    barrier, move = story.line(40, "xr.sync()"), story.line(35, "ids = ids.to(device)")
    for i in range(13):
        change = Change("shape", f"s64[4,{8 + i}]", f"s64[4,{9 + i}]", made=move, name="ids") if i else None
        story.compile(f"length {i}", 200, barrier, change=change)
    (warning,) = heard(story)
    assert warning == (
        "compiled again 10 times, 2.00 s so far, for one cause at train.py:35: "
        "last, ids went from s64[4,18] to s64[4,19]"
    )


def test_two_causes_are_counted_apart() -> None:
    story = Story()
    barrier, lines = (
        story.line(40, "xr.sync()"),
        [story.line(35, "a = a.to(device)"), story.line(36, "b = b.to(device)")],
    )
    for i in range(18):
        story.compile(
            f"length {i}", 200, barrier, change=Change("shape", f"f32[{i}]", f"f32[{i + 1}]", made=lines[i % 2])
        )
    assert heard(story) == []


def test_a_function_that_torch_compile_gives_up_is_said_at_once() -> None:
    story = Story()
    call, func = story.line(7, "loss = step(x)"), story.text("step")
    for i in range(9):
        guard = Guard("value", "n", str(i), str(i + 1))
        story.emit(Recompile(story.now, f"0/{i}", func, call, guards=[guard]))
    story.emit(DynamoLimit(story.now, "0/8", func, call, value=8))
    (warning,) = heard(story)
    assert "compiles no more versions of step (called at train.py:7): recompile_limit is 8" in warning
