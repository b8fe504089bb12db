"""Plain Python that goes over elements while the device idles: one cause, whichever of the loop's lines looks found."""

from __future__ import annotations

import pytest

from tests.analysis.test_gaps import Watched, idle_gaps


def _lines(story: Watched, *, inline: bool, loop: int = 46) -> list[int]:
    """Stacks of what looks found: pages that are compared with each other in ``closeness``, or in the loop of epochs.

    A function is seen as it begins, and where its loop goes back to the head.
    """
    if inline:
        return [
            story.line(line, code, func="main", loops=(loop,))
            for line, code in ((47, "if a[0] != b[0]: continue"), (50, "shared += w in b"), (51, "if full: continue"))
        ]
    begins = story.line(41, "def closeness(pages):", func="closeness", outer=(31,), loops=(0, 20))
    goes_back = [
        story.line(line, code, func="closeness", outer=(31,), loops=(loop, 20))
        for line, code in ((47, "if a[0] != b[0]: continue"), (51, "shared += 1"))
    ]
    return [begins, *goes_back]


def _epochs(count: int, story: Watched, lines: list[int], ms: float, *, steps: int = 6) -> None:
    """``count`` epochs, each of a few steps; then ``ms`` of Python, at the first of ``lines`` for more than a third."""
    barrier = story.line(25, "xm.mark_step()", func="main", loops=(22,))
    ends = story.line(30, "xm.mark_step()", func="main", loops=(20,))
    for _ in range(count):
        for _ in range(steps):
            with story.step():
                story.trace(2)
                story.barrier(barrier, device=5, dispatch=0, compile=0)
        with story.step():
            story.barrier(ends, device=5, dispatch=0, compile=0)
            story.wait()
        for share, stack in zip((0.4, 0.3, 0.3), lines, strict=True):
            story.seen(share * ms, "python", stack)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("epochs", [3, 8])
def test_what_a_loop_over_elements_takes_after_each_epoch_is_one_finding_at_the_loop(epochs: int, inline: bool) -> None:
    """Of three epochs the device waits between them twice: behind the last program nothing idles."""
    story = Watched()
    _epochs(epochs, story, _lines(story, inline=inline), 800)
    (found,) = idle_gaps(story)
    assert (found.place.line, found.count) == (46, epochs - 1)
    assert found.cost_s == pytest.approx(0.8 * (epochs - 1), rel=0.05)
    assert "in the loop at train.py:46" in found.cause
    assert "operations on whole arrays in place of the loop at train.py:46" in found.advice
    assert found.rhythm == "every 7 steps"
    (idle,) = (one for one in story.report().accounts if "idle" in one.what)
    assert idle.unexplained_s < 0.01


def test_twice_is_an_accident_without_a_loop_and_too_little_is_not_worth_a_word() -> None:
    for loop, ms in ((0, 800), (46, 40)):
        story = Watched()
        _epochs(3, story, _lines(story, inline=False, loop=loop), ms, steps=60)
        assert idle_gaps(story) == [], (loop, ms)


def test_a_line_that_takes_nearly_all_of_the_loop_is_named_itself() -> None:
    story = Watched()
    line = story.line(48, "rows.append(parse(page))", func="parsed", outer=(31,), loops=(46, 20))
    _epochs(5, story, [line] * 3, 800)
    (found,) = idle_gaps(story)
    assert found.place.line == 48
    assert "in place of the loop at train.py:46" in found.advice


def test_a_loop_that_takes_little_of_a_function_is_not_what_fills_it() -> None:
    """A function of many statements, each seen for a part of it; the loop of one is seen as rarely as any other."""
    story = Watched()
    lines = [
        story.line(line, f"step {line}", func="album", outer=(31,), loops=(loop, 20))
        for line, loop in ((60, 0), (63, 0), (66, 65))
    ]
    _epochs(6, story, lines, 800)
    (found,) = idle_gaps(story)
    assert found.place.line == 31
    assert "in place of the loop" not in found.advice
