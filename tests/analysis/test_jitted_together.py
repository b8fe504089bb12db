"""What belongs to one finding of JAX's programs, as one change ends it all."""

from __future__ import annotations

import msgspec
import pytest
from story import MS

from xlaprof.events import ArgumentChange, JitCompile, Look, OutsideOperations, TransferToDevice

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


def test_numbers_of_one_object_are_one_cause_and_a_mode_that_another_object_had_before_is_none() -> None:
    """A lens is traced for each curvature and distance that it has; of crown glass or quartz, each with operations of
    its own."""
    story = Jitted()
    last = {"glass.curvature": "0", "glass.distance": "0", "glass.kind": "'crown'"}
    operations = {"'crown'": 11, "'quartz'": 22}
    for turn in range(24):
        kind = "'quartz'" if turn % 4 == 3 else "'crown'"
        now = {"glass.curvature": str(turn), "glass.distance": str(turn // 3), "glass.kind": kind}
        changes = [ArgumentChange("field", name, last[name], now[name]) for name in now if now[name] != last[name]]
        with story.step("step"):
            start, name = story.now, story.text("step")
            story.spend(2_000)
            made = JitCompile(start, story.now - start, name, story.call, story.code, versions=turn)
            story.emit(msgspec.structs.replace(made, changes=changes[::-1], content=operations[kind]))
            story.execute("step", 5, story.call)
        last = now
    (one,) = story.found("recompile")
    assert one.count == 22, "but for the first of each kind"
    assert one.cause.startswith("glass.curvature (and glass.distance), which is no array")


_LOSSES = ("/venv/optax/losses/_regression.py", 40, "huber_loss", "errors = jnp.abs(predictions - targets)", 0)


def test_a_score_behind_the_steps_of_an_epoch_is_one_program_with_what_it_compiles() -> None:
    """Each epoch ends with the score of a house's forecast by 40 draws in a Python loop: at its lines twelve programs
    of 100 ms are made, and one more for another number of draws each time. A library brings the targets there."""
    story = Jitted()
    story.call = story.line(40, "state = step(state)", func="main", loops=(38,))
    lines = [story.line(n, f"t{n} = ...", func="score", outer=(46,), loops=(59, 36)) for n in range(60, 72)]
    brings = story.line(72, "e = loss(y, t)", func="score", outer=(46,), loops=(59, 36), library=(_LOSSES,))
    joined = story.line(74, "return jnp.stack(scores).mean()", func="score", outer=(46,), loops=(0, 36))
    what = story.text("f32[200,384]")
    for epoch in range(5):
        for turn in range(20):
            with story.step("step"):
                if epoch == turn == 0:
                    story.made(ms=2_000)
                story.execute("step", 2, story.call)
                story.spend(4)
        for line in lines if epoch == 0 else ():
            start = story.now
            story.spend(100)
            story.emit(Look(start, 100 * MS, line, "python"))
            story.emit(JitCompile(start, story.now - start, story.text("mul"), line, ops=1))
        start, sizes = story.now, f"f32[{40 + epoch}] f32[{41 + epoch}]".split()
        story.spend(20)
        change = [ArgumentChange("shape", "x", *sizes, 0)] * bool(epoch)
        story.emit(JitCompile(start, story.now - start, story.text("mean"), joined, versions=epoch, changes=change))
        for line in lines:
            story.execute("mul", 0.01, line)
            story.emit(OutsideOperations(story.now, story.text("mul"), 40, line))
        story.put(
            *(TransferToDevice(story.now, 1_000, 1 << 18, stack=brings, again=epoch > 0, what=what) for _ in "ab")
        )
        story.emit(Look(story.now, 200 * MS, brings, "python"))
        story.emit(Look(story.now, 200 * MS, lines[0], "python"))
        story.spend(400)
        story.emit(OutsideOperations(story.now, story.text("abs"), 40, brings))
    (found,) = story.found("op_by_op")
    assert found.place.line == 46
    assert found.cost_s == pytest.approx(2 + 1.2, rel=0.1)
    assert "Compiling them as 12 programs took 1.20 s" in found.cause
    assert "the body of score's loop (or all of it, where the turns are few: they are unrolled)" in found.advice
    assert "jax.lax.map or jax.vmap where no turn needs the result of another" in found.advice
    assert "Do once, before the loop" not in found.advice


@pytest.mark.parametrize(("library", "share", "told"), [(False, 0.5, True), (False, 0.05, False), (True, 0.5, False)])
def test_data_is_to_be_brought_once_where_much_is_computed_at_a_line_of_the_program(
    library: bool, share: float, told: bool
) -> None:
    """A table of tides goes to the device in each step, for two lines of a plain function."""
    story = Jitted()
    where = {"func": "tide", "outer": (41, 90), "loops": (0, 40)}
    brings = story.line(12, "h = jnp.asarray(table) * k", **where, library=(_LOSSES,) * library)
    other = story.line(14, "h = jnp.sin(h + phase)", **where)
    for turn in range(60):
        with story.step("step"):
            if turn == 0:
                story.made()
            sent = {"again": turn > 1, "what": story.text("f32[9,4096]") if turn > 1 else 0}
            story.put(TransferToDevice(story.now, 1_000_000, 1 << 17, stack=brings, **sent))
            for line, part in ((brings, share), (other, 1 - share)):
                story.emit(Look(story.now, round(part * 40 * MS), line, "python"))
                story.spend(part * 40)
                story.emit(OutsideOperations(story.now, story.text("mul"), 15, line))
            story.execute("step", 5, story.call)
            story.spend(6)
    (found,) = story.found("op_by_op")
    assert ("Do once, before the loop" in found.advice) is told
    assert ("train.py:12 brings to the device again and again (f32[9,4096])" in found.advice) is told
    assert "under jax.jit" in found.advice


@pytest.mark.parametrize("jitted", [False, True])
def test_a_loop_that_goes_on_by_a_value_is_one_while_loop_whatever_it_calls(jitted: bool) -> None:
    """A balance of flows is improved, and its error taken, by two plain functions until that is small; or the loop
    stops an epoch's steps early."""
    story = Jitted()
    if jitted:
        story.call = story.line(53, "state = step(state)", func="main", loops=(52,))
    called = [
        story.line(n, "f = f * k", func=func, outer=(at,), loops=(0, 50))
        for n, func, at in ((20, "improve", 51), (30, "error", 54))
    ]
    stop = "if error(flows) < 1e-6: break"
    tested = story.line(54, "if error(flows) < 1e-6:", func="main", loops=(50,), takers=(stop,))
    for turn in range(60):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 1, story.call)
            for line in called:
                for _ in range(5):
                    story.execute("mul", 0.01, line)
                story.emit(Look(story.now, 20 * MS, line, "python"))
                story.spend(20)
                story.emit(OutsideOperations(story.now, story.text("mul"), 15, line))
            story.read(tested, NUMBER)
            story.spend(2)
    found = story.found("op_by_op")
    whole = [one for one in found if "Put the whole loop at line 50 into one function under jax.jit" in one.advice]
    assert ([len(one.parts) for one in whole], len(found)) == (([], 2) if jitted else ([1], 1))
    for one in whole:
        assert "as a jax.lax.while_loop, which tests on the device what train.py:54 reads" in one.advice
        assert one.cost_s == pytest.approx(2.4, rel=0.1)
