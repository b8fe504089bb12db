"""What operations outside of jitted functions gain as one program, and what of them a list makes that grows."""

from __future__ import annotations

import msgspec
import pytest

from xlaprof.analysis.fold.jit import Jit
from xlaprof.analysis.whatif.one_program import compiling
from xlaprof.events import ArgumentChange, JitCompile, Look, OutsideOperations
from xlaprof.text.quantities import duration, plural

from .test_jitted import Jitted, sized


@pytest.mark.parametrize(("device_ms", "gain_s"), [(0.05, 2.0), (2.05, 1.2), (3.05, 0.8)])
def test_work_that_one_program_has_too_is_no_gain(device_ms: float, gain_s: float) -> None:
    """A map is rotated by nine small operations and an interpolation, whose own work may take longer than any of them
    needs to be dispatched: 400 turns of 5 ms, a program for each line."""
    story = Jitted()
    lines = [story.line(n, "x = rotate(x)", func="turned", outer=(52,), loops=(0, 50)) for n in range(30, 40)]
    names = [f"op{n}" for n in range(10)]
    for nth, name in enumerate(names):
        story._programs[name] = nth + 2
    story.made()
    story.execute("step", 1, story.call)
    for turn in range(400):
        for line, name in zip(lines, names, strict=True):
            story.execute(name, device_ms if name == "op9" else 0.05, line)
            story.spend(0.5)
        if turn % 20 == 19:
            story.emit(Look(story.now, 100_000_000, lines[0], "python"))
    for line, name in zip(lines, names, strict=True):
        story.emit(OutsideOperations(story.now, story.text(name), 400, line))
    (found,) = story.found("op_by_op")
    assert found.cost_s == pytest.approx(2.0, rel=0.01)
    assert found.gain_s == pytest.approx(gain_s, rel=0.02)
    own = f"about {duration(2 - gain_s)} is work of the device that one program has, too, most of it at "
    assert (own in found.cause) is (gain_s < 2)
    assert ("What it computes of the same data in each turn" in found.advice) is (gain_s < 1)
    (busy,) = (one for one in story.report().accounts if one.what == "busy")
    assert busy.explained_s == pytest.approx(0.2, rel=0.1), "400 times ten programs of 50 us, most of it to begin one"
    assert busy.normal_s == pytest.approx(2 - gain_s, abs=0.05)


def test_work_of_its_own_alone_is_not_told_as_dispatch() -> None:
    """A factorization of 20 ms in each turn, which no program makes shorter: its host waits for the one before."""
    story = Jitted()
    line = story.line(30, "root = jnp.linalg.cholesky(cov)", func="draw", outer=(52,), loops=(0, 50))
    story._programs["cholesky"] = 2
    story.made()
    story.execute("step", 1, story.call)
    for turn in range(300):
        story.execute("cholesky", 20, line)
        story.spend(20)
        if turn % 10 == 0:
            story.emit(Look(story.now, 200_000_000, line, "python"))
    story.emit(OutsideOperations(story.now, story.text("cholesky"), 300, line))
    assert story.found("op_by_op") == []


def _compiled(ms: float, ops: int, programs: int, line: int = 20) -> list[JitCompile]:
    return [JitCompile(t, round(ms * 1e6), 1, line, ops=ops) for t in range(programs)]


def test_one_program_takes_as_long_for_what_is_dear_and_an_eighth_of_a_program_for_each_other_operation() -> None:
    jit = Jit()
    for event in (
        *_compiled(40, 1, 30),
        *_compiled(48, 1, 10, 21),
        *_compiled(440, 15, 4, 22),
        *_compiled(40, 2, 9, 23),
    ):
        jit.on_compile(event, -1)
    takes = compiling(jit)
    assert takes.one(ops=40, took=40 * 40e6, programs=40) == pytest.approx(40e6 * (1 + 40 / 8))
    assert takes.one(ops=60, took=4 * 440e6, programs=4) == pytest.approx(40e6 + 4 * 400e6), "as random numbers do"
    assert takes.one(ops=40, took=40 * 40e6, programs=40, times=4) == pytest.approx(40e6 * (4 + 40 / 8))
    assert compiling(Jit()).one(10, 0, 0) == 0


@pytest.mark.parametrize(("joins", "told"), [(False, 0), (True, 1)])
def test_sizes_of_what_is_made_before_the_steps_are_leaves_but_where_pieces_are_joined(joins: bool, told: int) -> None:
    """Eleven layers of a decoder are scaled and shifted, each of its own width; or so is an archive that grows by a
    file each time."""
    story = Jitted()
    names = ("concatenate" if joins else "mul", "add")
    lines = [story.line(n, "w = scaled(w)", func="prepare", outer=(50,), loops=(0, 49)) for n in (20, 21)]
    for turn in range(12):
        for line, name in zip(lines, names, strict=True):
            start = story.now
            story.spend(300)
            changes = [ArgumentChange("shape", "x", f"f32[{8 * turn}]", f"f32[{8 * turn + 8}]", 0)] * bool(turn)
            story.emit(JitCompile(start, story.now - start, story.text(name), line, versions=turn, changes=changes))
    for turn in range(20):
        with story.step("step"):
            if not turn:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(5)
    assert [(one.place.line, one.count) for one in story.found("recompile")] == [(20, 22)] * told
    (account,) = (one for one in story.report().accounts if one.what == "jax")
    assert ("24 operations outside of jitted functions were compiled one by one" in account.text) is not told


class Listed(Jitted):
    """A judge of games keeps a rating of each, stacks them at line 60, and has a jitted function called with it."""

    def __init__(self) -> None:
        super().__init__()
        self.joins = self.line(60, "ratings = jnp.stack(kept)", func="judge", outer=(41, 90), loops=(0, 38))

    def compiled(self, name: str, stack: int, versions: int, *changes: ArgumentChange, arrays: int = 0) -> None:
        start = self.now
        self.spend(100)
        code = self.code if stack == self.call else 0
        made = JitCompile(start, self.now - start, self.text(name), stack, code, versions=versions, arrays=arrays)
        self.emit(msgspec.structs.replace(made, changes=list(changes) if versions else []))

    def stacked(self, turn: int, arrays: int, stack: int = 0) -> None:
        change = ArgumentChange("structure", "args", "", f"args[{turn}] f32[16]")
        self.compiled("stack", stack or self.joins, turn, change, arrays=arrays)


@pytest.mark.parametrize("turns", [20, 130])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_computed_of_a_list_that_grows_is_a_part_of_its_finding(turns: int, rows: int) -> None:
    """Whether a hundred arrays were joined or not; each has as many rows."""
    story = Listed()
    mean = story.line(61, "spread = jnp.std(ratings)", func="judge", outer=(41, 90), loops=(0, 38))
    for turn in range(turns):
        with story.step("step"):
            grown = sized(rows * turn, rows * (turn + 1)) if turn else []
            story.stacked(turn, turn + 1)
            story.compiled("std", mean, turn, *grown)
            story.compiled("step", story.call, turn, *grown)
            story.execute("step", 5, story.call)
            story.spend(5)
    (found,) = story.found("recompile")
    assert (found.place.line, found.count) == (60, 3 * (turns - 1))
    assert f"stack joins a list of {turns} arrays" in found.cause
    assert "as long, and compiled for each length, too: step at train.py:40, and std at train.py:61" in found.cause
    assert found.advice.startswith("Keep the values in one array of full size, made once")


def test_a_list_that_grows_and_batches_that_vary_in_the_same_turns_are_two_causes() -> None:
    story, sizes = Listed(), (40, 31, 57, 23, 61, 38, 29, 52, 44, 35)
    for turn, size in enumerate(sizes):
        with story.step("step"):
            story.stacked(turn, turn + 1)
            story.compiled("step", story.call, turn, *sized(sizes[turn - 1], size))
            story.execute("step", 5, story.call)
            story.spend(5)
    found = story.found("recompile")
    assert sorted((one.place.line, one.count) for one in found) == [(40, 9), (60, 9)]


def test_two_lists_that_grow_in_the_same_turns_are_one_habit_and_one_is_joined_part_by_part() -> None:
    """JAX joins many numbers sixteen at a time: their number and the number of these parts change in turn."""
    story = Listed()
    joined = story.line(62, "curve = jnp.array(losses)", func="judge", outer=(41, 90), loops=(0, 38))
    for turn in range(40):
        with story.step("step"):
            story.stacked(turn, turn + 1)
            if turn % 8 == 7:
                change = ArgumentChange("structure", "args", "", f"args[{turn // 8}] f32[16]")
            else:
                change = ArgumentChange("shape", "args", f"f32[{turn % 8}]", f"f32[{turn % 8 + 1}]", 0)
            story.compiled("concatenate", joined, turn, change, arrays=2 + turn // 8)
            if not turn:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(5)
    (found,) = story.found("recompile")
    assert (found.place.line, found.count) == (60, 78)


@pytest.mark.parametrize(("ms", "loop", "found"), [(60, 38, 1), (5, 38, 0), (60, 0, 0)])
def test_small_programs_of_a_plain_function_that_the_steps_loop_calls_are_no_first_compilation_that_is_normal(
    ms: int, loop: int, found: int
) -> None:
    """A fit looks at its likelihood every tenth step, at 12 lines of a plain function: a program for each of these, of
    60 ms; or of next to nothing; or before the loop, as a set-up."""
    story = Jitted()
    story.call = story.line(40, "theta = climb(theta)", func="main", loops=(38,))
    lines = [story.line(n, f"t{n} = ...", func="likelihood", outer=(44,), loops=(0, loop)) for n in range(60, 72)]
    for turn in range(100):
        with story.step("step"):
            if turn == 0:
                story.made(ms=2_000)
            for line in lines if turn % 10 == 5 else ():
                if turn == 5:
                    start = story.now
                    story.spend(ms)
                    story.emit(JitCompile(start, story.now - start, story.text("mul"), line, ops=1))
                story.execute("mul", 0.01, line)
                story.emit(OutsideOperations(story.now, story.text("mul"), 1, line))
            story.execute("step", 30, story.call)
            story.spend(30)
    told = story.found("op_by_op")
    assert [one.place.line for one in told] == [44] * found
    for one in told:
        assert one.cost_s == pytest.approx(0.72)
        assert one.gain_s == pytest.approx(0.72 - 0.06 * (1 + 12 / 8))
        assert one.advice.startswith("Put what likelihood computes into one function under jax.jit")
        assert "Compiling them as 12 programs took 720 ms" in one.cause
    charges = {charge.what: charge for charge in story.report().jax.charges}
    assert charges["first"].seconds == pytest.approx(2 + 12 * ms / 1_000 * (1 - found))
    assert f"{plural(13 - 12 * found, 'program')}: normal" in charges["first"].why
    accounts = [account for account in story.report().accounts if account.what == "jax"]
    explained = [one.kind for account in accounts for one in told if one.id in account.findings]
    assert len(explained) == found


@pytest.mark.parametrize("traced", [False, True])
def test_looks_on_other_ways_to_a_line_are_of_its_operations_unless_it_is_traced_there(traced: bool) -> None:
    """A world's turn: four operations, which the looks find on other ways to their lines, too, than the first."""
    story = Jitted()
    lines = [story.line(n, "at = move(at)", func="turned", outer=(52,), loops=(0, 50)) for n in range(30, 34)]
    ways = ((40, n) if traced else (n, 52) for n in range(60, 80))  # at line 40 a jitted function is called
    agents = [story.line(30, "at = move(at)", func="turned", outer=way, loops=(0, 0, 50)) for way in ways]
    names = [f"turn{n}" for n in range(4)]
    for nth, name in enumerate(names):
        story._programs[name] = nth + 2
    story.made()
    story.execute("step", 1, story.call)
    for turn in range(400):
        for line, name in zip(lines, names, strict=True):
            story.execute(name, 0.05, line)
            story.spend(1)
        story.spend(4)
        if turn % 20 == 19:
            story.emit(Look(story.now, 80_000_000, lines[0], "python"))
            story.emit(Look(story.now, 80_000_000, agents[turn // 20], "cpu"))
    for line, name in zip(lines, names, strict=True):
        story.emit(OutsideOperations(story.now, story.text(name), 400, line))
    report = story.report()
    (found,) = [one for one in report.findings if one.kind == "op_by_op"]
    assert found.cost_s == pytest.approx(1.6 if traced else 3.2, rel=0.01)
    (idle,) = [one for one in report.accounts if one.what == "idle"]
    if not traced:
        assert idle.explained_s == pytest.approx(idle.total_s, rel=0.02)
