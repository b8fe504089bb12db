"""What programs of JAX need, by XLA's own word: memory, cost, collectives; and arguments that it could be given."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import processes
import pytest
from flax import nnx

import xlaprof
from sources.jitted import Told, told
from xlaprof.analysis.model import JitProgramStat
from xlaprof.events import JitProgram, Undonated
from xlaprof.sources.jax import arguments
from xlaprof.sources.jax.collectives import exchanges

SIDE = 1024  # 4 MiB an array
LAYERS = 9


def weights() -> list[Any]:
    return [0.1 * jnp.eye(SIDE) for _ in range(LAYERS)]


def loss(params: list[Any], x: Any) -> Any:
    for weight in params:
        x = jnp.tanh(x @ weight)
    return (x**2).mean()


def train_step(params: list[Any], x: Any) -> tuple[list[Any], Any]:
    value, changes = jax.value_and_grad(loss)(params, x)
    return [weight - 0.1 * change for weight, change in zip(params, changes, strict=True)], value


def needs(of: Told, name: str) -> JitProgramStat:
    [function] = [one for one in of.report.jax.functions if one.name == name]
    [program] = function.programs
    return program


def train(step: Callable[..., Any], *, keep: bool = False, times: int = 8) -> None:
    params, kept = weights(), []
    for _ in range(times):
        params, _ = step(params, jnp.ones((4, SIDE)))
        kept += [params] * keep
    assert jnp.isfinite(params[0].sum())


def test_memory_and_operations_of_a_program_are_xlas(tmp_path: Path) -> None:
    step = jax.jit(train_step)
    found = told(tmp_path / "run.log", lambda: train(step))
    xlas = step.lower(weights(), jnp.ones((4, SIDE))).compile()
    program, memory = needs(found, "train_step"), xlas.memory_analysis()
    assert (program.arguments, program.results, program.temporary, program.donated) == (
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        memory.alias_size_in_bytes,
    )
    assert program.arguments == (LAYERS * SIDE + 4) * SIDE * 4
    assert program.flops == int(xlas.cost_analysis()["flops"]) > 0
    assert (program.devices, program.programs, program.exchanges) == (1, 1, ())


def test_one_program_is_asked_about_once_and_operations_outside_never(tmp_path: Path) -> None:
    step = jax.jit(train_step)
    found = told(tmp_path / "run.log", lambda: train(step, times=30))
    assert len(found.recorded.of(JitProgram)) == 1


@pytest.mark.parametrize("keep", [False, True])
def test_a_state_that_nothing_holds_could_be_donated_and_one_that_is_kept_could_not(keep: bool, tmp_path: Path) -> None:
    found = told(tmp_path / "run.log", lambda: train(jax.jit(train_step), keep=keep))
    if keep:
        assert found.recorded.of(Undonated) == []
        assert found.report.findings == ()
        return
    finding = found.finding
    assert finding.kind == "donation"
    assert finding.place.code == "params, _ = step(params, jnp.ones((4, SIDE)))"
    assert "beside params, 36 MiB in 9 arrays" in finding.cause
    assert 'jax.jit(train_step, donate_argnames="params")' in finding.advice


DONATED: dict[str, Callable[[], Any]] = {
    "jax": lambda: jax.jit(train_step, donate_argnames="params"),
    "nnx": lambda: nnx.jit(train_step, donate_argnums=0),
    "equinox": lambda: eqx.filter_jit(train_step, donate="all"),
}


@pytest.mark.parametrize("by", DONATED)
def test_a_donated_state_is_no_finding(by: str, tmp_path: Path) -> None:
    found = told(tmp_path / "run.log", lambda: train(DONATED[by]()))
    assert found.report.findings == ()
    assert needs(found, "train_step").donated == LAYERS * SIDE * SIDE * 4


def test_a_copy_kept_now_and_then_is_seen(tmp_path: Path) -> None:
    step = jax.jit(train_step)

    def program() -> None:
        params, average = weights(), []
        for turn in range(20):
            if turn % 5 == 4:
                average = list(params)
            params, _ = step(params, jnp.ones((4, SIDE)))
        assert average

    assert told(tmp_path / "run.log", program).report.findings == ()


def test_a_state_of_equinox_and_of_nnx_is_named_as_the_program_writes_it(tmp_path: Path) -> None:
    def in_equinox() -> None:
        train(eqx.filter_jit(train_step))

    def in_nnx() -> None:
        train(nnx.jit(train_step))

    of_equinox = told(tmp_path / "equinox.log", in_equinox).finding
    assert "beside params" in of_equinox.cause
    assert 'equinox.filter_jit(train_step, donate="all")' in of_equinox.advice
    of_nnx = told(tmp_path / "nnx.log", in_nnx).finding
    assert "beside params" in of_nnx.cause
    assert 'nnx.jit(train_step, donate_argnames="params")' in of_nnx.advice


def test_a_pytree_that_raises_is_the_programs_own_matter(tmp_path: Path) -> None:
    class Odd:
        pass

    def flatten(odd: Odd) -> Any:
        raise ValueError("no leaves today")

    jax.tree_util.register_pytree_node(Odd, flatten, lambda _, children: Odd())

    def program() -> None:
        with pytest.raises(ValueError, match="no leaves today"):
            jax.jit(lambda odd: 1)(Odd())
        train(jax.jit(train_step))

    assert told(tmp_path / "run.log", program).finding.kind == "donation"


# -- the persistent cache

CACHED = """
import sys

import jax
import jax.numpy as jnp

cache, least, quiet = sys.argv[1:]
if cache:
    jax.config.update("jax_compilation_cache_dir", cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", float(least))
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@jax.jit
def compute(x):
    if not quiet:
        jax.debug.print("{x}", x=x.sum())
    return jnp.tanh(x @ x).sum()


compute(jnp.ones((8, 8)))
"""


def states(folder: Path, cache: Path | str, least: float, *, quiet: bool = True) -> tuple[bool, str]:
    """Whether the program for ``compute`` came from the cache, and why it did not."""
    script, log = folder / "program.py", folder / "run.log"
    script.write_text(CACHED)
    program = (str(script), str(cache), str(least), "quiet" if quiet else "")
    done = processes.run("-m", "xlaprof", "run", "--no-report", "-o", str(log), *program)
    assert done.returncode == 0, done.stderr
    events = list(xlaprof.read(log))
    texts = {one.id: one.text for one in events if type(one).__name__ == "Text"}  # type: ignore[attr-defined]
    [made] = [one for one in events if type(one).__name__ == "JitCompile" and texts[one.func] == "compute"]  # type: ignore[attr-defined]
    return made.cached, made.unkept  # type: ignore[attr-defined]


def test_why_the_persistent_cache_does_not_have_a_program(tmp_path: Path) -> None:
    assert states(tmp_path, "", 0) == (False, "off")
    assert states(tmp_path, tmp_path / "cache", 60) == (False, "fast")
    assert states(tmp_path, tmp_path / "cache", 0, quiet=False) == (False, "other")
    assert states(tmp_path, tmp_path / "cache", 0) == (False, "")  # written
    assert states(tmp_path, tmp_path / "cache", 0) == (True, "")


# -- collectives

DIVIDED = """
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))


def place(x, *spec):
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))


params = {"w": place(jnp.ones((512, 512)), "d"), "b": place(jnp.zeros(512))}


def loss(params, batch):
    hidden = batch["x"] @ params["w"]  # here
    return jnp.tanh(hidden + params["b"]).mean()


@jax.jit
def train_step(params, batch):
    gradients = jax.grad(loss)(params, batch)
    return jax.tree.map(lambda one, change: one - 0.1 * change, params, gradients)


@jax.jit
def along_a_loop(x, n):
    return jax.lax.fori_loop(0, n, lambda _, y: y + x.T @ x, jnp.zeros((64, 64)))  # loop


for _ in range(4):
    params = train_step(params, {"x": place(jnp.ones((32, 512)), "d")})
along_a_loop(place(jnp.ones((128, 64)), "d"), 3)
"""


def test_a_collective_is_told_with_its_line_and_the_argument_that_forces_it(tmp_path: Path) -> None:
    script, log = tmp_path / "divided.py", tmp_path / "run.log"
    script.write_text(DIVIDED)
    four = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "PATH": "", "HOME": str(tmp_path)}
    done = processes.run("-m", "xlaprof", "run", "--no-report", "-o", str(log), str(script), env=four)
    assert done.returncode == 0, done.stderr
    functions = {one.name: one for one in xlaprof.report(log).jax.functions}
    [step] = functions["train_step"].programs
    assert step.devices == 4
    found = {(one.kind, one.place.code, one.arguments) for one in step.exchanges}
    here = 'hidden = batch["x"] @ params["w"]  # here'
    assert ("all-gather", here, ("params['w']: dimension 0 in 4",)) in found
    assert any(kind == "all-reduce" and "batch['x']: dimension 0 in 4" in why for kind, _, why in found)
    [gathered] = [one for one in step.exchanges if one.kind == "all-gather"]
    assert (gathered.shape, gathered.bytes) == ("f32[512,512]", 512 * 512 * 4)
    said = " ".join(functions["train_step"].needs)
    assert "all-gather of f32[512,512], 1 MiB for divided.py:" in said
    assert "as params['w'] is divided along dimension 0 in 4" in said
    [turns] = functions["along_a_loop"].programs
    assert {one for each in turns.exchanges for one in each.arguments} == {"x: dimension 0 in 4"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HloModule all-reduce",
        "ENTRY %main (p: f32[2]) -> f32[2] {\n  ROOT %r = f32[2] all-reduce(%p",
        "ENTRY %main (p: f32[2]) -> f32[2] {\n  ROOT %r = (f32[2] all-reduce(%r), index=9, stack_frame_id=7\n}",
    ],
)
def test_text_that_is_torn_is_no_error(text: str) -> None:
    assert all(not one.arguments and not one.frames for one in exchanges(text))


def test_how_a_parameter_is_divided_is_read_in_each_form() -> None:
    def forced(sharding: str) -> list[tuple[str, str]]:
        return [
            argument
            for one in exchanges(
                "ENTRY %main (p: f32[8,8]) -> f32[8,8] {\n"
                f"  %p = f32[8,8]{{1,0}} parameter(0), sharding={{{sharding}}}, "
                "metadata={op_name=\"state[\\'w\\']\"}\n"
                "  %c = (f32[8,8]{1,0}, f32[8,8]{1,0}) all-gather-start(%p), dimensions={0}\n"
                "  ROOT %d = f32[8,8]{1,0} all-gather-done(%c)\n}\n"
            )
            for argument in one.arguments
        ]

    assert forced("devices=[4,1]<=[4]") == [("state['w']", "dimension 0 in 4")]
    assert forced("devices=[2,2]<=[4]") == [("state['w']", "dimension 0 in 2, dimension 1 in 2")]
    assert forced("devices=[1,2,2]<=[4] last_tile_dim_replicate") == [("state['w']", "dimension 1 in 2")]
    assert forced("devices=[2,1,2]<=[4] last_tile_dims={manual}") == [("state['w']", "dimension 0 in 2")]
    assert forced("replicated") == []
    assert forced("maximal device=1") == []


class _Array:
    """What can be referred to weakly."""


def test_an_array_that_another_thread_holds_in_passing_is_none_that_the_program_keeps() -> None:
    leaf, other = arguments._Leaf(0, "tables", 4 << 20), arguments._Leaf(0, "tables", 4 << 20)
    passing, kept = _Array(), _Array()
    leaf.of.append(weakref.ref(passing))
    assert not leaf.is_held(())
    del passing
    assert not leaf.is_held(())
    assert (leaf.gone, leaf.of) == (1, [])
    other.of.append(weakref.ref(kept))
    assert [other.is_held(()) for _ in range(2)] == [False, True], "it is there still"
