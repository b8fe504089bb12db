"""Barriers, steps, step closures, seeds and optimizer_step."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.modes import closures

from ..counting import counted  # noqa: TID252


def test_a_step_cuts_where_it_begins_and_where_it_ends() -> None:
    xr.sync()
    x = torch.ones(3).to("xla")
    with counted() as counts:
        for _ in range(12):
            with xr.step():
                x = x + 0.5
        xr.sync()
    assert counts["MarkStep"] == 25
    assert counts.runs == 12
    assert x.tolist() == [7.0] * 3


def test_sync_takes_what_pytorch_xlas_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3).to("xla") + 1
    xr.sync(wait=True, reset_scope=False)
    xr.wait_device_ops(devices=[x.device, "xla:0"])
    xr.wait_device_ops([])
    monkeypatch.setenv("XLA_SYNC_WAIT", "1")
    y = x + 1
    xr.mark_step()
    assert y._storage.array.is_ready()
    with pytest.raises(RuntimeError, match="xla:99 is no device"):
        xr.wait_device_ops(["xla:99"])


def test_closures_see_values_of_the_barriers_own_graph() -> None:
    xr.sync()
    x = torch.arange(4.0).to("xla")
    seen = []
    loss, most = (x * 3.5).sum(), (x * 3.5).max()
    xr.add_step_closure(lambda a, b: seen.append((a.item(), b.item())), args=(loss, most))
    xr.add_step_closure(lambda: seen.append("second"))
    with counted() as counts:
        xr.sync()
    assert seen == [(21.0, 10.5), "second"]
    assert counts.runs == 1
    xr.sync()
    assert len(seen) == 2


def test_closures_run_at_any_barrier() -> None:
    seen: list[str] = []
    for name, barrier in (
        ("mark_step", xr.mark_step),
        ("step", lambda: xr.step().__enter__()),
        ("compile", xr.compile(lambda: None)),
    ):
        xr.add_step_closure(seen.append, args=(name,))
        barrier()
    assert seen == ["mark_step", "step", "compile"]


def test_a_closure_added_by_a_closure_is_for_the_next_barrier() -> None:
    seen: list[int] = []
    xr.add_step_closure(lambda: xr.add_step_closure(seen.append, (1,)))
    xr.sync()
    assert seen == []
    xr.sync()
    assert seen == [1]


def test_what_a_closure_raises_reaches_the_program_and_the_others_run() -> None:
    seen: list[int] = []

    def fails() -> None:
        raise LookupError("in the closure")

    xr.add_step_closure(fails)
    xr.add_step_closure(seen.append, (2,))
    with pytest.raises(LookupError, match="in the closure"):
        xr.sync()
    assert seen == [2]
    xr.sync()
    with pytest.raises(TypeError, match="something to be called, not int"):
        xr.add_step_closure(3)  # type: ignore[arg-type]


def test_asynchronous_closures_run_in_order_on_a_thread_of_their_own() -> None:
    seen: list[tuple[float, bool]] = []

    def look(value: torch.Tensor) -> None:
        seen.append((value.item(), threading.current_thread() is threading.main_thread()))

    x = torch.ones(2).to("xla")
    for _ in range(3):
        x = x * 2
        xr.add_step_closure(look, (x.sum(),), run_async=True)
        xr.sync()
    closures.wait()
    assert seen == [(4.0, False), (8.0, False), (16.0, False)]


def test_the_error_of_an_asynchronous_closure_is_raised_by_a_barrier_that_follows() -> None:
    def fails() -> None:
        raise LookupError("on the thread")

    xr.add_step_closure(fails, run_async=True)
    xr.sync()
    closures.wait()
    with pytest.raises(LookupError, match="on the thread"):
        xr.sync()
    xr.sync()


def test_closures_that_are_left_run_before_the_program_ends_and_their_errors_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    thread = closures.Thread()
    thread.run_all([lambda: print("late"), lambda: 1 // 0])
    thread.finish()  # as at exit
    told = capsys.readouterr()
    assert told.out == "late\n"
    assert "an asynchronous step closure failed:" in told.err
    assert "ZeroDivisionError" in told.err


def test_a_seed_is_of_one_device_or_of_all() -> None:
    xr.manual_seed(11, device="xla:0")
    first = torch.rand(4, device="xla").cpu()
    state = xr.get_rng_state("xla:0")
    second = torch.rand(4, device="xla").cpu()
    xr.manual_seed(11)
    assert torch.equal(torch.rand(4, device="xla").cpu(), first)
    xr.set_rng_state(state, device="xla:0")
    assert torch.equal(torch.rand(4, device="xla").cpu(), second)


def test_optimizer_step_steps_and_cuts_where_asked_to() -> None:
    model = nn.Linear(2, 1, bias=False).to("xla")
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(1, 2).to("xla")).sum().backward()
    xr.sync()
    with counted() as counts:
        assert xr.optimizer_step(optimizer) is None
    assert counts["MarkStep"] == 0
    with counted() as counts:
        loss = xr.optimizer_step(optimizer, barrier=True, optimizer_args={"closure": lambda: 3.0})
    assert loss == 3.0
    assert (counts["MarkStep"], counts.runs) == (1, 1)
    assert model.weight.tolist() == [[0.0, 0.0]]
