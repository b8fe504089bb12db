"""Patterns that make programs of JAX slow, planted in real ones, and their harmless twins."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import callback as jax_callback
from recording import recording

from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.events import Execute, HostCallbacks, JitCompile, OutsideOperations, TransferFromDevice
from xlaprof.sources.jax.jaxprs import unrolled


def report(path: Path, program: Callable[[], Any]) -> tuple[Report, list[Any]]:
    jax.clear_caches()
    with recording(path) as recorded:
        program()
    events = recorded().events
    return Run().feed_all(events).report(), events


def kinds(found: Report) -> list[str]:
    return [one.kind for one in found.findings]


@pytest.mark.parametrize("turns", [5, 700])
def test_a_python_loop_in_a_jitted_function_is_found_by_its_line(turns: int, tmp_path: Path) -> None:
    @jax.jit
    def simulate(x: Any) -> Any:
        for turn in range(turns):
            x = jnp.sin(x) * 1.01 + turn  # here
        return x

    found, events = report(tmp_path / "run.log", lambda: simulate(jnp.ones(4)))
    [made] = [one for one in events if isinstance(one, JitCompile) and one.ops >= 3 * turns]
    assert (made.turns, made.loop_ops) == ((700, 2100) if turns == 700 else (0, 0))
    if turns == 5:
        assert "unrolled_loop" not in kinds(found)
        return
    [finding] = [one for one in found.findings if one.kind == "unrolled_loop"]
    assert finding.place.code == "for turn in range(turns):"
    assert "traced 700 times" in finding.cause
    assert any(place.code == "x = jnp.sin(x) * 1.01 + turn  # here" for place in finding.also)
    assert "jax.lax.scan" in finding.advice


def test_a_function_that_is_also_called_beside_the_loop_is_told_apart_by_its_callers(tmp_path: Path) -> None:
    """A payoff: of the last day, and twice on each day before."""

    def payoff(x: Any) -> Any:
        return jnp.maximum(1.0 - x, 0.0)

    @jax.jit
    def price(x: Any) -> Any:
        value = payoff(x)
        for day in range(600):
            held = value * 0.99 + payoff(x * 0.5)
            now = payoff(x * day)
            value = jnp.where(now > held, now, held)
        return value

    found, events = report(tmp_path / "run.log", lambda: price(jnp.ones(4)))
    [made] = [one for one in events if isinstance(one, JitCompile) and one.ops > 1_000]
    assert made.turns == 600, "the payoff's line stands on two ways into the loop, and on one beside it"
    assert made.loop_ops > 0.95 * made.ops
    [finding] = [one for one in found.findings if one.kind == "unrolled_loop"]
    assert finding.place.code == "for day in range(600):"


def test_of_loops_within_loops_the_outermost_is_named(tmp_path: Path) -> None:
    def layers(x: Any) -> Any:
        for turn in range(6):
            x = jnp.sin(x) * 1.01 + turn  # here
        return x

    @jax.jit
    def tasks(xs: Any) -> Any:
        total = 0.0
        for task in range(300):
            total = total + layers(xs[task])
        return total

    found, _ = report(tmp_path / "run.log", lambda: tasks(jnp.ones((300, 4))))
    [finding] = [one for one in found.findings if one.kind == "unrolled_loop"]
    assert "traced 1,800 times" in finding.cause  # half a second of compiling, which a loop is told for
    assert "Begin with the loop of most turns" in finding.advice
    assert finding.place.code == "for task in range(300):"


def test_of_loops_in_one_function_the_outermost_is_named_too(tmp_path: Path) -> None:
    """Rays through a lens: a recording tells one loop for a frame, so each further one is a frame by itself."""

    @jax.jit
    def traced(x: Any) -> Any:
        seen = jnp.zeros(4)
        for ray in range(400):
            at = x * ray
            for _ in range(3):
                at = jnp.sin(at) * 1.01 + seen  # here
            seen = seen + at
        return seen

    found, _ = report(tmp_path / "run.log", lambda: traced(jnp.ones(4)))
    [finding] = [one for one in found.findings if one.kind == "unrolled_loop"]
    assert finding.place.code == "for ray in range(400):"
    assert "for _ in range(3):" in {place.code for place in finding.also}
    assert "traced 1,200 times" in finding.cause
    assert "nn.scan" not in finding.advice, "no module is called"


def test_layers_that_a_loop_calls_are_to_be_scanned_over(tmp_path: Path) -> None:
    class Layer:
        def __call__(self, x: Any) -> Any:
            return jnp.tanh(x) * 1.01 + 0.5

    @jax.jit
    def model(x: Any) -> Any:
        for layer in [Layer()] * 1_500:
            x = layer(x)
        return x

    found, _ = report(tmp_path / "run.log", lambda: model(jnp.ones(4)))
    [finding] = [one for one in found.findings if one.kind == "unrolled_loop"]
    assert finding.place.code == "for layer in [Layer()] * 1_500:"
    assert "(nn.scan, nnx.scan)" in finding.advice


def test_the_backward_pass_of_a_loop_has_as_many_turns() -> None:
    def loss(x: Any) -> Any:
        for _ in range(200):
            x = jnp.sin(x) * x
        return x.sum()

    seen = unrolled.unrolled(jax.make_jaxpr(jax.grad(loss))(jnp.ones(3)))
    assert seen.ops > 1_000
    assert 199 <= seen.turns <= 201
    assert seen.frames[0].file == __file__
    scanned = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, length=5_000)[0])(1.0)
    assert unrolled.unrolled(scanned).ops < 10


def test_operations_outside_of_jitted_functions_are_counted_by_line(tmp_path: Path) -> None:
    def program() -> None:
        x, until = jnp.ones(4), time.perf_counter() + 2.5
        while time.perf_counter() < until:
            x = jnp.tanh(x) * 0.5 + x  # here

    found, events = report(tmp_path / "run.log", program)
    [finding] = [one for one in found.findings if one.kind == "op_by_op"]
    assert finding.place.code == "x = jnp.tanh(x) * 0.5 + x  # here"
    assert "tanh" in finding.cause
    assert finding.cost_s > 1
    assert sum(one.calls for one in events if isinstance(one, OutsideOperations)) > 3_000


def test_the_finding_stands_at_the_loop_that_calls_what_could_be_one_program(tmp_path: Path) -> None:
    step = jax.jit(lambda w, x: w * 0.9 + x.sum())

    def shift(x: Any) -> Any:
        return jnp.roll(x, 1) * 0.5

    def blur(x: Any) -> Any:
        for _ in range(6):
            x = shift(x) + jnp.tanh(x)
        return x

    def train() -> None:
        w, x = jnp.zeros(()), jnp.ones((3, 40))
        until = time.perf_counter() + 2.5
        while time.perf_counter() < until:
            noisy = blur(x)  # here
            w = step(w, noisy)

    def run() -> None:
        for _ in range(2):
            train()

    found, _ = report(tmp_path / "run.log", run)
    [finding] = [one for one in found.findings if one.kind == "op_by_op"]
    assert finding.place.code == "noisy = blur(x)  # here"
    assert "blur, called in a loop at " in finding.cause
    assert {place.code for place in finding.also} >= {"x = shift(x) + jnp.tanh(x)", "return jnp.roll(x, 1) * 0.5"}
    assert "blur's loop (or all of it, where the turns are few" in finding.advice


def test_what_a_loop_does_with_numpy_stays_outside_of_the_function_to_jit(tmp_path: Path) -> None:
    """A glider whose wind tunnel is NumPy's: no loop around it can be one program, and the plan of a turn can."""

    def plan(lift: Any, air: Any) -> Any:
        for _ in range(4):
            air = jnp.tanh(air * lift + jnp.roll(air, 1)) - jnp.abs(air).mean()
        return jnp.clip(air, -1, 1)

    def tunnel(air: Any, flaps: Any) -> Any:
        gusts = np.sort(np.outer(air, air), axis=1)
        return (gusts.mean(1) + flaps).astype(np.float32)

    def fly(plan: Any, lift: Any, air: Any) -> Any:
        for _ in range(20):
            flaps = plan(lift, air)  # here
            air = tunnel(air, np.asarray(flaps))
        return air

    def program(plan: Any) -> None:
        air, lift = np.ones(200, np.float32), jnp.full((), 0.7)
        until = time.perf_counter() + 3
        while time.perf_counter() < until:
            air = fly(plan, lift, air)

    found, _ = report(tmp_path / "before.log", lambda: program(plan))
    [finding] = [one for one in found.findings if one.kind == "op_by_op"]
    assert finding.place.code == "flaps = plan(lift, air)  # here"
    assert "plan's loop (or all of it, where the turns are few" in finding.advice
    assert "A whole loop can be in it" not in finding.advice
    assert "Draw NumPy's random numbers before it" in finding.advice
    found, _ = report(tmp_path / "after.log", lambda: program(jax.jit(plan)))
    assert [one for one in found.findings if one.kind == "op_by_op"] == []


def test_numpys_random_numbers_are_drawn_before_the_jitted_function() -> None:
    """The caution beside that advice: within the function every call has those of the first; before it, its own."""

    def blurred(x: Any, rng: Any) -> Any:
        return given(x, [rng.uniform(0.5, 1.5) for _ in range(4)])

    def given(x: Any, gains: Any) -> Any:
        for gain in gains:
            x = jnp.tanh(x * gain) - jnp.abs(x).mean()
        return x

    x, within, passed = jnp.ones(200), jax.jit(blurred, static_argnums=1), jax.jit(given)
    rng = np.random.default_rng(0)
    by_itself = [blurred(x, rng) for _ in range(3)]
    rng = np.random.default_rng(0)
    drawn_before = [passed(x, rng.uniform(0.5, 1.5, 4).astype(np.float32)) for _ in range(3)]
    rng = np.random.default_rng(0)
    drawn_within = [within(x, rng) for _ in range(3)]
    for one, other in zip(by_itself, drawn_before, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert not np.allclose(by_itself[0], by_itself[1], rtol=1e-3)
    assert all(np.array_equal(one, drawn_within[0]) for one in drawn_within)


def test_a_loop_that_reads_whether_to_go_on_becomes_one_function(tmp_path: Path) -> None:
    def relax(x: Any) -> Any:
        return x * 0.999, jnp.abs(x).max()

    def solve(x: Any) -> Any:
        step, change = jax.jit(relax), 1.0
        while change > 1e-3:
            x, change = step(x)
            change = float(change)
        return x

    @jax.jit
    def solved(x: Any) -> Any:
        return jax.lax.while_loop(lambda state: state[1] > 1e-3, lambda state: relax(state[0]), (x, jnp.inf))

    found, _ = report(tmp_path / "before.log", lambda: solve(jnp.ones((300, 300))))
    [finding] = [one for one in found.findings if one.kind == "transfer"]
    assert finding.place.code == "change = float(change)"
    assert finding.advice.startswith("Put the whole loop into one function under jax.jit, as a jax.lax.while_loop")
    found, _ = report(tmp_path / "after.log", lambda: solved(jnp.ones((300, 300))))
    assert found.findings == ()


def test_a_few_of_them_are_no_finding(tmp_path: Path) -> None:
    step = jax.jit(lambda x: x * 2)

    def program() -> None:
        x = jnp.ones(4)
        for _ in range(60):
            x = step(x)
            time.sleep(0.002)
        print(x + 1)

    found, _ = report(tmp_path / "run.log", program)
    assert not {"op_by_op", "device_wait", "unrolled_loop"} & set(kinds(found))


def test_waiting_in_every_step_is_a_finding_and_once_at_the_end_is_none(tmp_path: Path) -> None:
    step = jax.jit(lambda w: w + 1e-5 * jnp.tanh(w @ w).T @ w)
    start = jnp.ones((600, 600)) / 600

    def program(each: bool) -> None:
        w = start
        for _ in range(25):
            time.sleep(0.015)
            w = step(w)
            if each:
                jax.block_until_ready(w)  # here
        w.block_until_ready()

    found, _ = report(tmp_path / "each.log", lambda: program(True))
    [finding] = [one for one in found.findings if one.kind == "device_wait"]
    assert finding.place.code == "jax.block_until_ready(w)  # here"
    assert "in every step" in finding.cause
    found, _ = report(tmp_path / "once.log", lambda: program(False))
    assert "device_wait" not in kinds(found)


@pytest.mark.parametrize("over", [False, True], ids=["by its index", "in a loop over them"])
def test_elements_that_are_taken_out_to_be_read_are_one_finding_with_their_read(over: bool, tmp_path: Path) -> None:
    rank = jax.jit(lambda x: jnp.argsort(x, axis=-1))
    best = jax.jit(lambda x: jnp.argmax(x, axis=-1))
    rows = jnp.ones((40, 8))

    def program() -> None:
        votes: Counter[int] = Counter()
        jax.block_until_ready(
            [*best(rows), rank(rows)[0, 0]]
        )  # what compiles is no part of the time that the loop lasts
        until = time.perf_counter() + 2.5
        while time.perf_counter() < until:
            order = rank(rows)
            if over:
                for first in best(rows):
                    votes[int(first)] += 1  # here
                continue
            for row in range(40):
                for place in range(5):
                    votes[int(order[row, place])] += 1  # here

    found, _ = report(tmp_path / "run.log", program)
    [finding] = (one for one in found.findings if one.place.code.endswith("# here"))
    assert (
        "Bring the whole tensor to the host once, before the loop over its elements (np.asarray(x))" in finding.advice
    )
    assert over or "op_by_op" in {finding.kind, *(part.kind for part in finding.parts)}
    assert [one for one in found.findings if one.kind in ("transfer", "op_by_op")] == [finding]


@pytest.mark.parametrize("calls", [jax.debug.callback, jax.experimental.io_callback], ids=["debug", "io"])
def test_python_that_a_program_calls_is_found_by_its_line(calls: Callable[..., Any], tmp_path: Path) -> None:
    seen: list[float] = []

    def note(total: Any) -> None:
        seen.append(float(total))

    def turn(carry: Any, _: Any) -> tuple[Any, Any]:
        carry = jnp.tanh(carry) * 0.5 + 0.1
        calls(note, *(() if calls is jax.debug.callback else (None,)), carry.sum())  # here
        return carry, None

    def program() -> None:
        simulate = jax.jit(lambda x: jax.lax.scan(turn, x, None, length=400)[0])
        x = jnp.ones(8)
        for _ in range(4):
            x = simulate(x)
        jax.block_until_ready(x)
        jax.effects_barrier()

    found, events = report(tmp_path / "run.log", program)
    told = [one for one in events if isinstance(one, HostCallbacks)]
    assert sum(one.calls for one in told) == len(seen) == 1_600
    assert not any(isinstance(one, TransferFromDevice) and one.bytes == 4 for one in events)  # is a part of it
    [finding] = [one for one in found.findings if one.kind == "host_callback"]
    assert finding.place.code.endswith("# here")
    assert finding.count == 1_600
    assert 0 < finding.cost_s < 60


def test_a_program_that_calls_python_is_no_idle_device(tmp_path: Path) -> None:
    """XLA's client for CPUs runs such a program within the call, however long: a table is looked up for each row."""
    table, spent, kinds_of = np.arange(256.0, dtype=np.float32), [0], jax.ShapeDtypeStruct((), np.float32)

    def look_up(at: Any) -> Any:
        return table[int(at) % 256]

    def row(carry: Any, at: Any) -> tuple[Any, Any]:
        return carry + jax.pure_callback(look_up, kinds_of, at), None

    def program() -> None:
        total, corrected = jnp.float32(0), jax.jit(lambda x: jax.lax.scan(row, x, jnp.arange(3_000))[0])
        for turn in range(4):
            begun = time.perf_counter_ns()
            total = corrected(total).block_until_ready()
            spent[0] += (time.perf_counter_ns() - begun) * (turn > 0)  # without compiling

    found, events = report(tmp_path / "run.log", program)
    ran = sorted(one.end - one.start for one in events if isinstance(one, Execute))[-3:]
    assert 0.9 * spent[0] < sum(ran) <= 1.5 * spent[0]
    [busy] = [one for one in found.accounts if one.what == "busy"]
    [told] = [one for one in found.findings if one.kind == "host_callback"]
    assert busy.findings == (told.id,)
    assert 0.5 * told.cost_s < busy.explained_s <= told.cost_s


class Thermostat:
    def __call__(self, power: Any) -> Any:
        return np.float32(20.0 + 3.0 * np.tanh(power))


@pytest.mark.parametrize("kept", ["function", "partial", "object"])
def test_python_that_a_vmapped_scan_calls_is_told_at_its_function(tmp_path: Path, kept: str) -> None:
    """JAX traces the turns once more by itself: no line of the program is on the way to the call."""

    def settle(rate: float, power: Any) -> Any:
        return np.float32(20.0 + rate * power)

    called: dict[str, Callable[[Any], Any]] = {
        "function": lambda power: settle(3.0, power),
        "partial": functools.partial(settle, 3.0),
    }
    host = called.get(kept, Thermostat())

    def room(power: Any) -> Any:
        return jax.pure_callback(host, jax.ShapeDtypeStruct((), np.float32), power, vmap_method="sequential")

    def turn(powers: Any, _: Any) -> tuple[Any, None]:
        return powers + 0.01 * jax.vmap(room)(powers), None

    heat = jax.jit(lambda powers: jax.lax.scan(turn, powers, None, length=40)[0])

    def program() -> None:
        powers = jnp.ones(30)
        for _ in range(3):
            powers = heat(powers)
        jax.block_until_ready(powers)

    found, _ = report(tmp_path / "run.log", program)
    [finding] = [one for one in found.findings if one.kind == "host_callback"]
    assert finding.count == 3 * 40 * 30
    names = {"function": "<lambda>", "partial": "settle", "object": "Thermostat.__call__"}
    assert finding.place.acting.func.endswith(names[kept])
    assert "'expand_dims' once, with all" in finding.advice


def test_python_that_is_called_once_in_a_program_is_no_finding_and_nothing_is_left_behind(tmp_path: Path) -> None:
    theirs = jax_callback.emit_python_callback
    seen: list[float] = []
    note = lambda total: seen.append(float(total))  # noqa: E731

    @jax.jit
    def step(x: Any) -> Any:
        jax.debug.callback(note, x.sum())
        return x * 2

    found, _ = report(tmp_path / "run.log", lambda: jax.block_until_ready(step(jnp.ones(4))))
    assert "host_callback" not in kinds(found)
    assert jax_callback.emit_python_callback is theirs
    jax.block_until_ready(step(jnp.ones(4)))  # compiled while it was recorded
    jax.effects_barrier()
    assert seen == [4.0, 4.0]


def test_elements_of_what_each_turn_makes_anew_are_no_one_array(tmp_path: Path) -> None:
    move = jax.jit(lambda x: jnp.sin(x) + x)

    def program() -> None:
        x, until = jnp.ones(4), time.perf_counter() + 2.5
        while time.perf_counter() < until:
            x = move(x)
            float(x[0])  # here

    found, events = report(tmp_path / "run.log", program)
    assert sum(one.calls for one in events if isinstance(one, OutsideOperations)) > 100  # they are taken out, and read
    told = [one for one in found.findings if one.place.code.endswith("# here")]  # mostly; a busy machine hides it
    assert not any("Bring the whole tensor" in one.advice for one in told)
