"""Findings come in the order of what their fixes give back."""

from __future__ import annotations

from story import Story

from xlaprof.events import Change


def resized(n: int) -> Change:
    return Change(what="shape", old=f"f32[{n}]", new=f"f32[{n + 1}]", subject="input of aten::embedding")


def test_what_gives_back_most_comes_first_however_much_another_was_measured_to_cost() -> None:
    story = Story()
    barrier, other = story.line(20, "xr.sync()"), story.line(30, "xr.sync()")
    for n in range(6):  # compiled again and again while the device has long work: nobody waits
        story.barrier(barrier, device=400, graph="long", compile=100, dispatch=0)
        story.barrier(other, device=1, graph=f"short {n}", compile=90, dispatch=0, change=resized(n) if n else None)
    for _ in range(20):
        with story.step():
            story.trace(6)
            story.barrier(barrier, device=6, graph="step", compile=0, dispatch=0)
            story.read(story.line(21, "print(loss.item())"), copy=0)
    first, second = story.findings()
    assert (first.kind, second.kind) == ("transfer", "recompile")
    assert first.cost_s < second.cost_s
    assert first.gain_s > second.gain_s == 0


def test_a_fix_that_others_make_needless_comes_after_one_that_adds_to_them() -> None:
    story = Story()
    barrier, item, fall = (
        story.line(20, "xr.sync()"),
        story.line(21, "print(loss.item())"),
        story.line(15, "w = eig(a)"),
    )
    for step in range(20):
        with story.step():
            story.trace(4)
            story.fallback(fall, "aten::linalg_eig", 1.9)
            change = resized(1) if step == 10 else None
            story.barrier(barrier, 10, "other" if change else "step", compile=40, dispatch=0, change=change)
            story.trace(2)
            story.read(item, copy=0)
    story.finish()
    found = {finding.kind: finding for finding in story.findings()}
    # without the reads the device is behind the host, and works on while that compiles
    assert found["fallback"].gain_s < found["recompile"].gain_s
    assert list(found) == ["transfer", "fallback", "recompile"]
    assert found["recompile"].gain_last_s == 0.0
    assert found["fallback"].gain_last_s is None  # after all others as much as alone: one number is told
    assert found["fallback"].gain_s > 0
