"""What belongs to one finding of JAX's programs, as one change ends it all."""

from __future__ import annotations

import pytest
from story import MS

from xlaprof.events import ArgumentChange, JitCompile, Look, OutsideOperations

from .test_jitted import NUMBER, Jitted


@pytest.mark.parametrize(("compile_ms", "alone"), [(150, False), (3_000, True)])
def test_what_takes_elements_out_to_be_read_costs_its_dispatch_though_it_is_compiled_for_a_few_shapes(
    compile_ms: float, alone: bool
) -> None:
    """Scores of routes come in four widths; a judge goes over them one by one, two operations and a read each."""
    story, shape, before = Jitted(), "f32[64,{}]".format, 0
    story.call = story.line(40, "scores = rank(batch)", func="judge", outer=(90,), loops=(38,))
    taken = story.line(44, "best = float(scores[i, t])", func="judge", outer=(90,), loops=(43,))
    story.made(ms=2_000)
    for nth, width in enumerate((22, 25, 19, 24)):
        if nth:
            change = ArgumentChange("shape", "batch", shape(before), shape(width), 1)
            story.made(change, ms=2_000, versions=nth)
        story.execute("rank", 5, story.call)
        start = story.now
        story.spend(compile_ms)
        story.emit(Look(start, story.now - start, taken, "python"))
        changes = [ArgumentChange("shape", "operand", shape(before), shape(width), 1)] if nth else []
        one = JitCompile(start, story.now - start, story.text("dynamic_slice"), taken, versions=nth, changes=changes)
        story.emit(one)
        for _ in range(300):
            story.execute("dynamic_slice", 0.01, taken)
            story.read(taken, NUMBER)
            story.spend(3)
        story.emit(Look(story.now, round(900 * MS), taken, "python"))
        before = width
    story.emit(OutsideOperations(story.now, story.text("dynamic_slice"), 1_200, taken))
    story.spend(2_000)
    found = {one.place.line: one for one in (*story.found("transfer"), *story.findings("op_by_op"))}
    if alone:  # to pad is what that needs
        assert all(one.kind == "transfer" and one.cost_s < 1 for one in found.values())
        return
    assert found[44].cost_s == pytest.approx(3.6, rel=0.2)
    assert "Bring the whole tensor to the host once" in found[44].advice


@pytest.mark.parametrize("both", [True, False])
def test_values_that_change_at_the_same_calls_are_named_together(both: bool) -> None:
    """The window of a smoother and its decay are set anew every tenth step; from the fifth time on the window stays."""
    story = Jitted()
    for turn in range(90):
        with story.step("step"):
            nth = turn // 10
            if turn == 0:
                story.made()
            elif turn % 10 == 0:
                decay = ArgumentChange("static", "decay", f"0.{nth}", f"0.{nth + 1}")
                window = ArgumentChange("static", "window", str(4 + nth), str(5 + nth))
                changed = [*([window] if nth < 5 else []), *([decay] if both or nth >= 5 else [])]
                story.made(*changed, ms=2_000, versions=nth)
            story.execute("step", 5, story.call)
            story.spend(5)
    found = story.found("recompile")
    assert [one.count for one in found] == ([8] if both else [4, 4])
    told = "So with decay, changed at the same calls: to mend one alone spares nothing." in found[0].advice
    assert told is both
    assert found[0].cause.startswith("The static argument window (and decay) changed from") is both
