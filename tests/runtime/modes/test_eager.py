"""Eager mode: each operation is compiled alone, kept, and run at once; values, views and errors are PyTorch's."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
import torch
from recording import recording
from torch import nn

import xlaprof.runtime as xr
from xlaprof import events
from xlaprof.analysis.diagnosis import cause
from xlaprof.runtime import parity
from xlaprof.runtime.execution.program import cache
from xlaprof.runtime.modes import numbers

from ..counting import counted  # noqa: TID252
from ..semantics.programs import check  # noqa: TID252

pytestmark = pytest.mark.usefixtures("eager")


def test_an_operation_is_compiled_once_and_run_each_time_it_is_called() -> None:
    x = torch.full((3, 5), 0.25).to("xla")
    xr.metrics.clear_counters()
    with counted() as counts:
        for _ in range(4):
            y = torch.logsumexp(x, 0)
        z = y - 7
    assert (counts["EagerOpCompileTime"], counts["EagerOpExecuteTime"]) == (2, 5)
    assert (xr.metrics.counter_value("UncachedCompile"), xr.metrics.counter_value("CachedCompile")) == (2, 3)
    assert (counts.compiles, counts.runs) == (0, 0)
    assert z._storage.array is not None
    torch.testing.assert_close(z.cpu(), torch.logsumexp(x.cpu(), 0) - 7)


def test_another_shape_is_another_program_and_another_number_is_not() -> None:
    x = torch.ones(2, 3).to("xla")
    x * 0.5
    with counted() as counts:
        for n in range(40):
            assert (x * (0.75 + n)).tolist() == [[0.75 + n] * 3] * 2
    assert counts["EagerOpCompileTime"] == 0
    with counted() as counts:
        x[:1].clone() * 0.5
    assert counts["EagerOpCompileTime"] == 2  # the copy of a part, and the product of another shape


def test_numbers_that_come_again_stay_on_the_device() -> None:
    x = torch.ones(4).to("xla")
    for n in range(numbers._OFTEN + 4):
        assert (x + 0.3125).tolist() == [1.3125] * 4, n
    kept = [array for (_, _, values), array in numbers._seen.items() if values == (0.3125,)]
    assert len(kept) == 1
    assert isinstance(kept[0], jax.Array)


def test_values_are_read_without_compiling() -> None:
    x = torch.arange(4.0).to("xla") * 3
    with counted() as counts:
        assert x.tolist() == [0, 3, 6, 9]
        assert x.sum().item() == 18
    assert counts["EagerOpCompileTime"] == 1  # the sum
    with counted() as counts:
        total = x.sum()
        assert total.item() == 18
        assert total.item() == 18
        assert bool(total)
    assert (counts["EagerOpCompileTime"], counts["EagerOpExecuteTime"]) == (0, 1)
    assert counts.reads == 3


def test_a_barrier_has_nothing_to_do() -> None:
    x = torch.ones(2).to("xla") + 1
    with counted() as counts:
        xr.sync()
        xr.mark_step()
        xr.wait_device_ops()
    assert counts["MarkStep"] == 2
    assert counts.runs == counts["EagerOpExecuteTime"] == 0
    assert x.tolist() == [2, 2]


def test_a_view_is_no_program_of_its_own_and_shows_what_is_written() -> None:
    base = torch.arange(6.0).reshape(2, 3).to("xla")
    with counted() as counts:
        row, turned = base[1], base.t()
    assert counts["EagerOpExecuteTime"] == 0
    row.mul_(10)
    assert base.tolist() == [[0, 1, 2], [30, 40, 50]]
    base.add_(1)
    assert turned.tolist() == [[1, 31], [2, 41], [3, 51]]
    assert row.tolist() == [31, 41, 51]


def test_many_views_of_one_tensor_are_forgotten_when_they_die() -> None:
    x = torch.ones(4).to("xla")
    for _ in range(1000):
        x[:2].sum()
    assert len(x._storage.views or ()) < 200


def test_programs_give_what_the_cpu_gives() -> None:
    for seed in range(8):
        check(seed, 5)


@pytest.mark.slow
def test_hundreds_of_programs() -> None:
    for seed in range(300):
        check(seed, 10)


def _train(device: str, make: Callable[..., torch.optim.Optimizer], steps: int = 4) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = make(model.parameters())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("foreach", [False, True])
def test_training_is_the_cpus(foreach: bool) -> None:
    def make(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.05, foreach=foreach)  # type: ignore[arg-type]

    assert _train("xla", make) == pytest.approx(_train("cpu", make), abs=1e-5)


def test_an_operation_over_a_list_is_one_program() -> None:
    tensors = [torch.ones(n).to("xla") for n in (2, 3, 4)]
    torch._foreach_add_(tensors, 2.5)
    with counted() as counts:
        torch._foreach_add_(tensors, 1.5)
    assert (counts["EagerOpCompileTime"], counts["EagerOpExecuteTime"]) == (0, 1)
    assert [t.tolist() for t in tensors] == [[5.0] * n for n in (2, 3, 4)]


def test_random_numbers_are_those_of_lazy_mode() -> None:
    def draw() -> list[torch.Tensor]:
        xr.manual_seed(7)
        x = torch.randn(3, 4, device="xla")
        return [x.cpu(), torch.rand(5, device="xla").cpu(), torch.empty(4, device="xla").normal_(2.0, 3.0).cpu(),
                torch.dropout(torch.ones(20, device="xla"), 0.5, True).cpu()]  # fmt: skip

    at_once = draw()
    with xr.eager_mode_context(False):
        lazily = draw()
    for one, other in zip(at_once, lazily, strict=True):
        torch.testing.assert_close(one, other)
    assert not torch.equal(torch.randn(9, device="xla").cpu(), torch.randn(9, device="xla").cpu())


def test_random_numbers_are_made_as_pytorch_makes_them() -> None:
    torch.randn(5, 5, device="xla")
    with counted() as counts:
        torch.randn(5, 5, device="xla")
    assert counts["EagerOpExecuteTime"] == 2  # memory, then what fills it


def test_sizes_that_values_decide() -> None:
    x = torch.tensor([3.0, -1.0, 0.0, 5.0]).to("xla")
    assert x[x > 0].tolist() == [3, 5]
    assert torch.nonzero(x).tolist() == [[0], [1], [3]]
    assert torch.unique(torch.tensor([3, 1, 3]).to("xla")).tolist() == [1, 3]


def test_the_error_comes_from_the_operation_that_is_wrong() -> None:
    a, b = torch.ones(2, 3).to("xla"), torch.ones(2, 3).to("xla")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        a @ b
    with pytest.raises(torch.OutOfMemoryError, match=r"aten::zeros at .*test_eager.py"):
        torch.zeros(1 << 43, device="xla")
    assert (a + b).tolist() == [[2.0] * 3] * 2


def test_values_that_pytorch_refuses_are_refused_at_once_with_debug_checks() -> None:
    table, far = torch.ones(3, 2).to("xla"), torch.tensor([0, 7]).to("xla")
    with xr.debug_checks(), pytest.raises(IndexError, match=r"index out of range in self .*test_eager.py"):
        torch.index_select(table, 0, far)
    assert (table + 1).sum().item() == 12


def test_what_was_pending_runs_when_the_mode_is_entered_and_the_mode_can_be_left() -> None:
    with xr.eager_mode_context(False):
        assert not xr.is_eager_mode()
        x = torch.arange(3.0).to("xla") * 2
        with counted() as counts, xr.eager_mode_context(True) as before:
            assert before is False
            assert xr.is_eager_mode()
        assert counts.runs == 1
        with counted() as counts:
            y = x + 1
        assert counts["EagerOpExecuteTime"] == counts.runs == 0
        xr.sync()
    assert xr.is_eager_mode()
    assert y.tolist() == [1, 3, 5]


def test_threads_run_operations_side_by_side() -> None:
    results: list[list[float]] = []

    def work(n: int) -> None:
        x = torch.full((8,), float(n)).to("xla")
        for _ in range(50):
            x = x + 1
        results.append(x.tolist())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [[n + 50.0] * 8 for n in range(4)]


def test_what_ran_is_counted_by_operator() -> None:
    x = torch.ones(3, 3).to("xla")
    xr.metrics.clear_all()
    for _ in range(3):
        torch.tanh(x).add_(1.5)
    assert xr.metrics.counter_value("xla::tanh") == 3
    assert xr.metrics.counter_value("xla::add") == 3
    assert xr.metrics.metric_data("EagerOpExecuteTime")[0] == 6  # type: ignore[index]


def test_a_log_tells_what_was_compiled_with_its_line_and_grows_with_time_not_with_operations(tmp_path: Path) -> None:
    x = torch.ones(16, 16).to("xla")
    with recording(tmp_path / "run.log") as recorded:
        for _ in range(500):
            x = torch.cosh(x * 1e-3)  # the line
        x.sum().item()
    log = recorded()
    compiled = [event for event in log.of(events.Compile) if event.trigger == "eager"]
    assert len(compiled) == 3
    runs = log.of(events.Execute)
    assert sum(run.calls for run in runs) == 1001
    assert len(runs) < 300
    assert all(run.trigger == "eager" and run.start <= run.end for run in runs)
    stacks = {stack.id: stack for stack in log.of(events.Stack)}
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# the line"))
    assert Counter(stacks[event.stack].frames[0].line for event in compiled)[line] == 2


def test_another_shape_is_told_as_the_reason_where_a_line_comes_again(tmp_path: Path) -> None:
    def step(*sizes: int) -> None:
        for n in sizes:  # as an optimizer goes through its parameters: no reason to change anything
            torch.sinh(torch.ones(n).to("xla"))

    with recording(tmp_path / "run.log") as recorded:
        step(3, 4)
        xr.sync()
        step(3, 4, 5)
    changes = [cause(event) for event in recorded().of(events.Compile)]
    assert changes[:2] == [None, None]
    assert changes[2] is not None
    assert (changes[2].what, changes[2].new) == ("shape", "f32[5]")
    assert changes[2].old in ("f32[3]", "f32[4]")


def test_a_program_that_was_forgotten_is_compiled_again() -> None:
    x = torch.ones(5).to("xla")
    torch.asinh(x)
    cache.clear()
    with counted() as counts:
        y = torch.asinh(x)
    assert (counts["EagerOpCompileTime"], counts["EagerOpExecuteTime"]) == (1, 1)
    torch.testing.assert_close(y.cpu(), torch.asinh(torch.ones(5)))


def test_strict_parity_can_be_asked_for_in_eager_mode() -> None:
    x = torch.tensor([1.0, 0.0, 2.0]).to("xla")
    assert torch.nonzero(x).tolist() == [[0], [2]]
    parity.set_strict(True)
    try:
        with counted() as counts:
            assert torch.nonzero(x).tolist() == [[0], [2]]
        assert counts["aten::nonzero"] == 1
    finally:
        parity.set_strict(False)


def test_doubles_and_longs_are_exact() -> None:
    big = torch.tensor([2**53 + 1, -(2**62)]).to("xla")
    assert (big + 2).tolist() == [2**53 + 3, 2 - 2**62]
    assert (torch.tensor([0.1], dtype=torch.float64).to("xla") * 3).item() == 0.1 * 3
    assert re.search("float64", repr((torch.ones(2, dtype=torch.float64).to("xla") / 3).dtype))


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_another_default_dtype_makes_other_operations(at_once: bool, cut: bool) -> None:
    before = torch.get_default_dtype()
    whole = torch.tensor([1, 4]).to("xla")
    with xr.eager_mode_context(at_once):
        try:
            for dtype in (torch.float32, torch.float64, torch.float32):
                torch.set_default_dtype(dtype)
                made, root = torch.ones(2, device="xla"), whole.sqrt()
                assert (made.dtype, root.dtype, (whole + 0.5).dtype) == (dtype,) * 3
                if cut:
                    xr.sync()
        finally:
            torch.set_default_dtype(before)
        assert root.tolist() == [1, 2]
