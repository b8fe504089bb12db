"""Uploads by JAX: arguments of calls that are the host's, and what is put on the device; which of it comes again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recording import Recorded, recording

from xlaprof.events import Execute, TransferToDevice
from xlaprof.sources.jax import internals

pytestmark = pytest.mark.usefixtures("one_by_one")

TABLE = np.random.default_rng(0).normal(size=(4_000, 64))


@jax.jit
def step(w: Any, table: Any, batch: Any) -> Any:
    return w + (batch @ table[:64]).sum(0)


def record(path: Path, program: Callable[[], Any]) -> Recorded:
    with recording(path) as recorded:
        program()
    return recorded()


def told(path: Path, program: Callable[[], Any]) -> tuple[list[TransferToDevice], list[TransferToDevice], list[str]]:
    """What came again, what was new, and what the former is called."""
    done = record(path / "run.log", program)
    sent = done.of(TransferToDevice)
    again = [one for one in sent if one.again]
    return again, [one for one in sent if not one.again], [done.texts[one.what] for one in again]


def calls(table: Any, batch: Callable[[int], Any], many: int = 40) -> None:
    w = jnp.zeros(64, jnp.float32)
    for number in range(many):
        w = step(w, table, batch(number))
        w.block_until_ready()


def test_a_table_that_each_call_brings_comes_again_and_its_batch_does_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    again, new, what = told(tmp_path, lambda: calls(TABLE, lambda _: rng.normal(size=(8, 64))))
    assert set(what) == {f"table f64[{','.join(map(str, TABLE.shape))}]"}
    assert sum(one.calls for one in again) >= 36
    assert {one.bytes // one.calls for one in again} == {TABLE.nbytes}
    assert any(one.dur > 0 for one in again), "its upload was measured"
    assert {one.bytes // one.calls for one in new if one.calls}.issuperset({8 * 64 * 8})


def test_a_table_on_the_device_is_no_upload(tmp_path: Path) -> None:
    table = jax.device_put(TABLE)
    rng = np.random.default_rng(1)
    again, _, _ = told(tmp_path, lambda: calls(table, lambda _: rng.normal(size=(8, 64))))
    assert not again


def test_a_buffer_that_is_filled_again_is_new_data(tmp_path: Path) -> None:
    buffer, rng = np.empty((8, 64)), np.random.default_rng(1)
    there = jax.device_put(TABLE)

    def filled(_: int) -> Any:
        buffer[:] = rng.normal(size=buffer.shape)
        return buffer

    again, new, _ = told(tmp_path, lambda: calls(there, filled))
    assert not again
    assert new


def test_numbers_never_come_again(tmp_path: Path) -> None:
    f = jax.jit(lambda x, rate, number: x * rate + number)

    def program() -> None:
        x = jnp.ones(3)
        for _ in range(30):
            x = f(x, 0.5, np.float32(2.0))
            x = f(x, np.array(0.5), 2)

    again, new, _ = told(tmp_path, program)
    assert not again
    assert new


@pytest.mark.parametrize("put", [jax.device_put, jnp.asarray, jnp.array], ids=lambda put: put.__name__)
def test_what_is_put_on_the_device_in_each_step_comes_again(put: Any, tmp_path: Path) -> None:
    table = TABLE.astype(np.float32)
    put(table).block_until_ready()

    def program() -> None:
        for _ in range(30):
            put(table).block_until_ready()

    again, _, what = told(tmp_path, program)
    assert sum(one.calls for one in again) >= 24
    assert {name.rpartition(" ")[2] for name in what} == {"f32[4000,64]"}


def test_a_constant_list_comes_again_too(tmp_path: Path) -> None:
    weights = [0.1 * number for number in range(64)]
    jnp.array(weights)

    def program() -> None:
        for _ in range(30):
            jnp.array(weights)

    again, _, what = told(tmp_path, program)
    assert sum(one.calls for one in again) >= 24
    assert {name.rpartition(" ")[2] for name in what} == {"f32[64]"}


def test_a_program_begins_when_its_arguments_are_there_and_not_after_its_end(tmp_path: Path) -> None:
    large = np.empty(6_000_001, np.float32)[1:]  # not where XLA could read it in place
    large[:] = 1
    f = jax.jit(lambda x: x[:8].sum())
    f(large).block_until_ready()

    def program() -> None:
        for _ in range(20):
            f(large).block_until_ready()

    done = record(tmp_path / "run.log", program)
    assert all(one.t <= one.start <= one.end for one in done.of(Execute))
    sent = [one for one in done.of(TransferToDevice) if one.dur]
    assert sent
    ends = sorted(one.end for one in done.of(Execute))
    assert max(one.t + one.dur for one in sent) <= ends[-1] + 1


def test_nothing_of_it_stays_after_the_recording(tmp_path: Path) -> None:
    owner = internals.uploading()
    before = owner.batched_device_put
    record(tmp_path / "run.log", lambda: jax.device_put(TABLE))
    assert owner.batched_device_put is before


def test_what_the_embedded_runtime_uploads_is_told_once(tmp_path: Path) -> None:
    import torch

    import xlaprof.runtime as xr

    table = torch.randn(200, 64)

    def program() -> None:
        for _ in range(4):
            table.to("xla").sum()
        xr.sync()

    done = record(tmp_path / "run.log", program)
    assert sum(one.bytes == 200 * 64 * 4 for one in done.of(TransferToDevice)) == 4
