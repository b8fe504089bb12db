"""Operations outside of jitted functions: what is a part of running them so, and what is compiled again each time."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xlaprof
from tests.sources.jitted import Tell, told
from xlaprof.analysis.places import short
from xlaprof.events import TransferFromDevice


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    return functools.partial(told, tmp_path / "run.log")


def test_the_shapes_of_a_models_leaves_are_no_finding(tell: Tell) -> None:
    def program() -> None:
        sizes = (18, 64, 48, 3)
        shapes = [shape for m, n in itertools.pairwise(sizes) for shape in ((m, n), (n,))]
        leaves = [np.ones(shape, np.float32) for shape in shapes]
        for _ in range(3):
            leaves = jax.tree.map(lambda leaf: jnp.asarray(leaf) * 0.9 + 0.1, leaves)

    run = tell(program)
    assert len(run.programs) > 12
    assert run.report.findings == ()


def test_a_size_that_varies_from_step_to_step_is_one(tell: Tell) -> None:
    step = jax.jit(lambda w: w * 2)

    def program() -> None:
        w = jnp.ones(3)
        for turn, rows in enumerate((5, 9, 6, 7)):
            with xlaprof.StepTrace("train", step_num=turn):
                w = step(w)
                jnp.cumsum(np.ones(rows, np.float32))  # here

    [finding] = tell(program).report.findings
    assert finding.place.code == "jnp.cumsum(np.ones(rows, np.float32))  # here"
    assert "is a program of its own for every shape" in finding.cause
    assert finding.count == 3


def test_what_follows_the_length_of_one_mask_is_one_finding(tell: Tell) -> None:
    """Operations of the indexing and of the next line are compiled for the same lengths: one cause."""
    pool = np.arange(60, dtype=np.float32).reshape(30, 2)
    step = jax.jit(lambda w: w * 2)

    def program() -> None:
        w = step(jnp.ones(3))
        for turn, kept in enumerate((25, 19, 28, 21, 23)):
            with xlaprof.StepTrace("train", step_num=turn):
                w = step(w)
                hard = jnp.asarray(pool)[jnp.arange(30) < kept]
                jnp.cumsum(hard[:16], axis=0)

    run = tell(program)
    [finding] = [one for one in run.report.findings if one.kind == "recompile"]
    again = [
        run.recorded.texts[one.func]
        for one in run.programs
        if one.changes and one.changes[0].kind == "shape" and one.changes[0].old.endswith(("[25]", "[25,2]", "[25,1]"))
    ]
    assert len(set(again)) >= 3  # it is several operations that are compiled again
    assert finding.count == 4 * len(again)
    assert finding.place.code == "hard = jnp.asarray(pool)[jnp.arange(30) < kept]"
    assert finding.cause.startswith(
        f"jnp.arange(30) < kept at {short(finding.place)} selects another number of elements each time (19 to 28), "
    )
    assert "jnp.nonzero(mask, size=...)" in finding.advice


def test_sizes_that_change_apart_are_findings_apart(tell: Tell) -> None:
    def program() -> None:
        step = jax.jit(lambda w: w * 2)
        w = step(jnp.ones(3))
        for turn, (left, right) in enumerate(((5, 40), (9, 31), (6, 57), (7, 23))):
            with xlaprof.StepTrace("train", step_num=turn):
                w = step(w)
                jnp.cumsum(np.ones(left, np.float32))
                jnp.sort(np.ones(right, np.float32))

    assert [one.kind for one in tell(program).report.findings].count("recompile") == 2


def test_an_array_that_grows_is_one_finding_where_it_is_made_and_where_it_is_passed(tell: Tell) -> None:
    def program() -> None:
        total = jax.jit(lambda curve: curve.sum(axis=0))
        curve = jnp.zeros((1, 4))
        for _ in range(14):
            curve = jnp.concatenate([curve, jnp.ones((1, 4))])
            total(curve)  # here

    [finding] = [one for one in tell(program).report.findings if one.kind == "recompile"]
    assert finding.place.code == "total(curve)  # here"
    assert "concatenate at test_jax_outside.py" in finding.cause
    assert "curve.at[i].set(value)" in finding.advice
    assert finding.count == 13 + 13


def test_what_is_computed_of_a_growing_array_from_some_length_on_has_the_same_cause(tell: Tell) -> None:
    def program() -> None:
        trace = jnp.ones((2, 7))
        for turn in range(16):
            trace = jnp.concatenate([trace, jnp.full((1, 7), turn, jnp.float32)])  # here
            if turn > 4:
                jnp.median(trace, axis=0)

    [finding] = [one for one in tell(program).report.findings if one.kind == "recompile"]
    assert finding.place.code.endswith("# here")
    assert "median" in finding.cause
    assert "one array of full size" in finding.advice
    assert "join once" not in finding.advice


def test_a_grid_that_is_refined_was_chosen(tell: Tell) -> None:
    """Both sides are longer on the finer grid: nothing that varies does so, and to pad them is no gain."""
    smooth = jax.jit(lambda field: jax.lax.fori_loop(0, 4, lambda _, u: u + 0.1 * jnp.tanh(jnp.roll(u, 1, 0)), field))

    def program() -> None:
        for cells in (21, 37):
            field = jnp.ones((cells, cells))
            for _ in range(5):
                field = smooth(field)

    run = tell(program)
    assert len(run.of("<lambda>")) >= 2
    assert [one for one in run.report.findings if one.kind == "recompile"] == []


def test_of_what_is_joined_piece_by_piece_no_selection_is_spoken(tell: Tell) -> None:
    def program() -> None:
        heard = jnp.zeros((0, 2))
        for turn in range(12):
            heard = jnp.append(heard, np.full((3, 2), turn, np.float32), axis=0)  # here

    finding = tell(program).finding
    assert finding.place.code.endswith("# here")
    assert "np.concatenate(jax.device_get(pieces))" in finding.advice
    assert "mask" not in finding.advice


def test_a_list_that_grows_is_one_finding_with_its_own_cause(tell: Tell) -> None:
    def program() -> None:
        seen = []
        for turn in range(6):
            seen.append(jnp.asarray(np.full(3, turn, np.float32)))
            jnp.stack(seen)  # here

    run = tell(program)
    [finding] = [one for one in run.report.findings if "joins a list" in one.cause]
    assert finding.place.code == "jnp.stack(seen)  # here"
    assert "jax.lax.scan are stacked" in finding.advice


def test_a_join_of_very_many_arrays_is_found_by_its_first_program(tell: Tell) -> None:
    def program() -> None:
        draws = [jnp.asarray(np.ones(2, np.float32))] * 150
        for shape in ((2,), (2, 1)):
            jnp.stack([draw.reshape(shape) for draw in draws])  # here

    run = tell(program)
    [finding] = [one for one in run.report.findings if "joins a list" in one.cause]
    assert "a list of 150 arrays" in finding.cause
    assert finding.count == 2
    assert "np.stack(jax.device_get(values))" in finding.advice


def test_a_function_given_to_a_loop_of_jaxs_outside_of_jit_is_traced_at_each_call(tell: Tell) -> None:
    xs = np.ones((4, 3), np.float32)

    def bound(scale: float) -> Any:
        return jax.lax.map(lambda x: jnp.sin(x) * scale, xs)  # here

    run = tell(lambda: [bound(0.5) for _ in range(5)])
    [finding] = [one for one in run.report.findings if one.kind == "recompile"]  # beside it a busy machine may idle
    assert finding.place.code == "return jax.lax.map(lambda x: jnp.sin(x) * scale, xs)  # here"
    assert "the function that it is given is a new object each time" in finding.cause
    assert "bound under jax.jit" in finding.advice
    assert finding.count == 4

    jitted = jax.jit(bound)  # as the advice says
    fixed = tell(lambda: [jitted(0.5) for _ in range(5)])
    assert len(fixed.of("bound")) == 1
    assert fixed.report.findings == ()


def test_the_closure_that_such_a_loop_is_made_for_is_named(tell: Tell) -> None:
    """To jit what is given the closure helps nobody: it is another one each time."""

    def relax(residual: Any, x: Any) -> Any:
        slope = jax.grad(lambda at: (residual(at) ** 2).sum())
        return jax.lax.fori_loop(0, 3, lambda _, at: at - 0.01 * slope(at), x)  # here

    def track(load: Any, x: Any) -> Any:
        def residual(at: Any) -> Any:
            return at**3 + jnp.sinh(at) - load

        return relax(residual, x)

    start, *loads = (jnp.full(3, load, jnp.float32) for load in range(7))  # on the device already: none is uploaded
    finding = tell(lambda: [track(load, start) for load in loads]).finding
    assert finding.place.code.endswith("# here")
    assert "new object each time, as residual is, which" in finding.cause
    assert "track makes: it is traced" in finding.cause
    assert "track does with residual into one function under jax.jit" in finding.advice
    assert "(what residual closes over: load)" in finding.advice

    solve = jax.jit(track)  # as the advice says
    fixed = tell(lambda: [solve(load, start) for load in loads])
    assert fixed.report.findings == ()


def test_loops_of_jaxs_that_need_a_program_each_are_none_too_many(tell: Tell) -> None:
    """Fillings of a tank that differ in what they carry: under jit each would be a program, too."""
    inflow = np.ones((4, 3), np.float32)

    def fill(names: Sequence[str]) -> Any:
        tank = {name: jnp.asarray(inflow[0]) for name in names}
        return jax.lax.scan(lambda at, x: ({k: v + x for k, v in at.items()}, at), tank, inflow)  # here

    def program() -> None:
        for count in range(1, 6):
            fill("salty"[:count])
        fill("abcdef")

    run = tell(program)
    assert len(run.of("scan")) == 6
    assert run.report.findings == ()
    again = tell(lambda: [program() for _ in range(3)])
    [finding] = again.report.findings
    assert finding.count == 12
    assert "the function that it is given is a new object each time" in finding.cause

    [row] = [one for one in run.report.jax.functions if one.place.code.endswith("# here")]
    assert row.graphs >= 6, "one row for the line, whoever calls it"


def test_elements_of_a_list_are_one_cause(tell: Tell) -> None:
    @jax.jit
    def vote(members: Any) -> Any:
        return sum(member["w"] for member in members)

    ones = jnp.ones(3)  # on the device already: nothing is uploaded

    def program() -> None:
        for count in range(1, 7):
            vote([{"w": ones}] * count)

    run = tell(program)
    assert run.finding.count == 5
    assert "The structure of members changed" in run.finding.cause
    assert len({one.name for changes in run.changes("vote") for one in changes}) > 1


def test_constants_of_a_closure_are_no_reads(tell: Tell) -> None:
    table = jnp.arange(5_000.0)
    run = tell(lambda: jax.jit(lambda x: x + table)(np.float32(1)))
    assert run.recorded.of(TransferFromDevice) == []
    assert len(tell(lambda: float(jax.jit(lambda x: x + 1)(np.float32(1)))).recorded.of(TransferFromDevice)) == 1


class Epidemic:
    """Simulates days: each call scans over them, by a function of its own."""

    def __init__(self, jits: bool) -> None:
        self.rate = jnp.float32(0.3)
        if jits:
            self.simulate = jax.jit(self.simulate)  # type: ignore[method-assign]

    def simulate(self, x: Any) -> Any:
        return jax.lax.scan(lambda state, day: (state * self.rate + day, state), x, jnp.arange(9.0))  # here


def test_a_method_is_put_under_jit_where_its_object_is_made(tell: Tell) -> None:
    def program(jits: bool) -> None:
        epidemic = Epidemic(jits)
        for _ in range(5):
            epidemic.simulate(jnp.float32(1))

    [finding] = tell(lambda: program(jits=False)).report.findings
    assert finding.place.code.endswith("# here")
    assert finding.advice.startswith("Put Epidemic.simulate under jax.jit, which is made once (a method: ")
    assert "self.simulate = jax.jit(self.simulate) in __init__" in finding.advice
    fixed = tell(lambda: program(jits=True))
    assert fixed.report.findings == ()
    assert len(fixed.of("simulate")) == 1


def surface(x: Any) -> Any:
    thick = jnp.sqrt(jnp.clip(1.05 - x, 0.01)) * (1 + 0.1 * x)  # thick
    stress = jnp.exp(thick) * 9.81 / (1 + jnp.cos(x) ** 2)
    return jnp.tanh(stress) + jnp.arctan(thick) - jnp.sin(stress * 3).sum()


def test_a_set_up_that_is_compiled_operation_by_operation_is_told_with_its_way_out(tell: Tell) -> None:
    run = tell(lambda: surface(jnp.ones(40)))
    assert run.report.findings == ()
    assert run.report.jax is not None
    [first] = [one for one in run.report.jax.charges if one.what == "first"]
    assert " operations outside of jitted functions were compiled one by one, " in first.why
    line = surface.__code__.co_firstlineno + 1
    assert f"test_jax_outside.py:{line} (" in first.why
    assert (
        "put what such a line does into one function under jax.jit, and one program in place of many spares"
        in first.why
    )
    [account] = [one for one in run.report.accounts if one.what == "jax"]
    assert "avoidable: " in account.text
    assert account.total_s == pytest.approx(run.report.jax.total_s)
    fixed = tell(lambda: jax.jit(surface)(jnp.ones(40)))
    assert len(fixed.programs) <= 3 < len(run.programs)
    assert fixed.report.jax is not None
    assert fixed.report.jax.total_s < run.report.jax.total_s
    assert not any("one by one" in one.text for one in fixed.report.accounts)


def test_one_call_of_vmap_for_all_that_a_comprehension_goes_through(tell: Tell) -> None:
    tides = np.linspace(0, 1, 16 * 8, dtype=np.float32).reshape(16, 8)
    buoys = [np.full((8, 4), n, np.float32) for n in range(200)]

    def probe(buoy: Any, tide: Any) -> Any:
        return jnp.tanh(tide @ buoy).sum()

    def one_by_one() -> None:
        single, tide, placed = jax.jit(probe), jnp.asarray(tides), [jnp.asarray(buoy) for buoy in buoys]
        for _ in range(600):
            found = [single(buoy, tide) for buoy in placed]
        jax.block_until_ready(found)

    def at_once() -> None:
        every, tide = jax.jit(jax.vmap(probe, (0, None))), jnp.asarray(tides)
        placed = jnp.asarray(np.stack(buoys))
        for _ in range(600):
            found = every(placed, tide)
        jax.block_until_ready(found)

    (finding,) = (one for one in tell(one_by_one).report.findings if one.kind == "op_by_op")
    assert finding.place.code == "found = [single(buoy, tide) for buoy in placed]"
    assert "Call probe once for all that the comprehension" in finding.advice
    assert not [one for one in tell(at_once).report.findings if one.kind == "op_by_op"]


def test_each_loop_of_operations_is_a_finding_with_what_it_calls(tell: Tell) -> None:
    """A kite is flown, then reeled in; the wind on its sail is a function of its own."""

    def drag(wind: Any) -> Any:
        return jnp.tanh(wind) * 0.3 + jnp.abs(wind)

    def fly() -> None:
        at = line = jnp.ones(7)
        until = time.perf_counter() + 3  # compiling included
        while time.perf_counter() < until:
            at = jnp.sin(at) * 0.9 + jnp.cos(at) - drag(at)  # flown
        until = time.perf_counter() + 1.5
        while time.perf_counter() < until:
            line = jnp.sqrt(line) * 0.99  # reeled

    flown, reeled = sorted(tell(fly).report.findings, key=lambda one: one.place.line)
    assert (flown.kind, reeled.kind) == ("op_by_op", "op_by_op")
    assert flown.place.code == "at = jnp.sin(at) * 0.9 + jnp.cos(at) - drag(at)  # flown"
    assert "return jnp.tanh(wind) * 0.3 + jnp.abs(wind)" in {one.code for one in flown.also}
    assert reeled.place.code == "line = jnp.sqrt(line) * 0.99  # reeled"
    assert all("the body of the loop at line" in one.advice for one in (flown, reeled))
