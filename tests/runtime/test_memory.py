"""What is alive on the device: told exactly, given up where it can be, gone when dropped."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable

import jax
import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.execution import upload
from xlaprof.runtime.execution.program import cache
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.grow import ALWAYS_PACKED

from .counting import counted

KiB = 1024


@pytest.fixture(autouse=True)
def nothing_pending() -> None:
    gc.collect()
    xr.sync(wait=True)


def in_use() -> int:
    return xr.memory_info().bytes_in_use


def all_there_is() -> int:
    """Bytes of every array of jax's: the truth that memory_info() is held to."""
    return sum(array.nbytes for array in jax.live_arrays())


def line() -> int:
    return sys._getframe(1).f_lineno


# -- memory_info --------------------------------------------------------------------------------------


def test_planted_tensors_are_told_with_their_lines() -> None:
    before = xr.memory_info()
    weights = [torch.zeros(256, 4).to("xla") for _ in range(3)]
    uploaded = line() - 1
    computed = weights[0] + 1.5
    made = line() - 1
    halves = weights[0][:128], weights[0][128:]  # views hold no memory of their own
    info = xr.memory_info(top=1000)

    assert info.bytes_in_use - before.bytes_in_use == 3 * 4 * KiB
    assert info.buffers - before.buffers == 3
    assert info.pending_bytes - before.pending_bytes == 4 * KiB

    xr.sync()
    info = xr.memory_info(top=1000)
    assert info.bytes_in_use - before.bytes_in_use == 4 * 4 * KiB
    assert info.pending_bytes == before.pending_bytes
    told = {(h.shape, h.dtype, h.place, h.count, h.bytes) for h in info.holders}
    assert ((256, 4), torch.float32, f"{__file__}:{uploaded}", 3, 12 * KiB) in told
    assert ((256, 4), torch.float32, f"{__file__}:{made}", 1, 4 * KiB) in told
    assert sum(holder.bytes for holder in info.holders) == info.bytes_in_use
    assert "4 KiB" in str(info)
    assert str(made) in str(info)

    del weights, computed
    assert in_use() - before.bytes_in_use == 4 * KiB  # the views' base
    assert halves[0].shape == (128, 4)
    del halves
    assert in_use() == before.bytes_in_use


def test_the_sum_is_what_jax_has() -> None:
    gc.collect()  # else what other tests left may go between the two readings
    base = torch.randn(64, 8).to("xla")
    alias, copy = base.view(-1), base.clone()
    copy.mul_(2.0)
    loss = (alias.square().mean() + copy.sum()).requires_grad_()
    ours = jax.numpy.ones(1000)  # made without torch
    xr.sync()
    before = all_there_is()
    info = xr.memory_info()

    # a thread of another test may let go of a buffer meanwhile
    assert info.bytes_in_use + info.other_bytes in (before, all_there_is())
    assert info.other_bytes >= ours.nbytes
    assert info.limit_bytes is None or info.limit_bytes > info.bytes_in_use
    assert loss.shape == ()


def test_buffers_that_the_tape_still_reads_count() -> None:
    x = torch.ones(256).to("xla")
    before = in_use()
    y = x * 3.5
    del x
    assert in_use() == before  # y needs it
    xr.sync()
    assert in_use() == before  # y has taken its place
    assert y.sum().item() == 256 * 3.5


def test_only_the_largest_groups_are_listed_and_all_are_counted() -> None:
    small, large = torch.ones(2).to("xla"), torch.ones(2**16).to("xla")
    info = xr.memory_info("xla:0", top=1)

    assert len(info.holders) == 1
    assert info.holders[0].bytes >= large.nbytes
    assert info.bytes_in_use >= small.nbytes + large.nbytes


# -- a training run -----------------------------------------------------------------------------------


class Training:
    """A model, Adam, and a step of it; with and without an error in between."""

    def __init__(self, width: int = 16) -> None:
        self.model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)).to("xla")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.width = width

    def step(self, batch: int = 4) -> None:
        x = torch.randn(batch, self.width).to("xla")
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()
        xr.sync()

    def broken_step(self) -> None:
        x = torch.randn(4, self.width + 1).to("xla")
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            self.model((x * 2.0).relu())

    def bytes(self) -> int:
        """Of parameters, gradients and the optimizer's state."""
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        return sum(t.nbytes for t in (*self.model.parameters(), *gradients, *kept) if t.device.type == "xla")


def census() -> tuple[int, int, int, int]:
    """(arrays, nodes of the trie, objects the collector knows, objects of the tape's): all there could be more of."""
    xr.wait_device_ops()
    gc.collect()
    tape = tapes.tape()
    of_tape = len(tape.storages) + len(tape.arrays) + len(tape.viewed) + len(tape.floats[len(ALWAYS_PACKED) :])
    return len(jax.live_arrays()), tape.nodes, len(gc.get_objects()), of_tape


def test_steps_leave_nothing_behind() -> None:
    training = Training()
    for _ in range(upload.KEPT + 20):  # the numbers of so many runs are kept
        training.step()
    more = []
    for _ in range(3):
        before = census()
        for _ in range(50):
            training.step()
        after = census()
        assert after[3] == before[3] == 0
        arrays, nodes, objects = (max(0, now - then) for now, then in zip(after[:3], before[:3], strict=True))
        more.append((arrays, nodes, objects // 50))
    # what a step leaves, each leaves: threads of earlier tests make, and let go of, some objects now and then
    assert (0, 0, 0) in more, more


def test_errors_leave_nothing_behind() -> None:
    training = Training()
    for _ in range(3):
        training.broken_step()
        training.step()
    more = []
    for _ in range(3):
        before, held = census(), in_use()
        for _ in range(5):
            training.broken_step()
            training.step()
        after = census()
        more.append((in_use() - held, after[0] - before[0], after[1] - before[1]))
    assert (0, 0, 0) in more, more  # an error that leaves something does so each time; other tests' threads may end


def normalized(x: torch.Tensor) -> None:
    """In training: a composite, whose parts take roads of their own."""
    nn.functional.batch_norm(x, torch.zeros(4, device="xla"), torch.ones(4, device="xla"), training=True)


def laid_in_place(x: torch.Tensor) -> None:
    x.renorm_(2, 0, 1.0)


def multiplied_in_vain(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        x @ torch.ones(3, 3, device="xla")


@pytest.mark.parametrize("use", [normalized, laid_in_place, multiplied_in_vain])
def test_a_tensor_is_let_go_of_without_the_garbage_collector(use: Callable[[torch.Tensor], None]) -> None:
    """Were it not, the barrier would find values alive that nobody uses, others in every step: new graphs."""
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(2, 4, device="xla")
        alive = weakref.ref(x)
        use(x)
        del x
        assert alive() is None
    finally:
        gc.enable()


def test_shapes_that_change_leave_no_memory_behind() -> None:
    training = Training()
    training.step()
    training.step()
    xr.wait_device_ops()
    held, arrays = in_use(), len(jax.live_arrays())
    for batch in (5, 6, 7):
        training.step(batch)
    xr.wait_device_ops()

    assert in_use() == held
    # each program keeps the numbers it was last given: floats, ints, seeds, and its end
    assert len(jax.live_arrays()) - arrays <= 3 * 4


def test_a_step_gives_its_buffers_up() -> None:
    training = Training(width=128)
    for _ in range(3):
        training.step()
    xr.wait_device_ops()
    old = [weakref.ref(p._storage.array) for p in training.model.parameters()]
    program = next(reversed(cache._programs.values()))
    gradients = sum(p.grad.nbytes for p in training.model.parameters() if p.grad is not None)
    training.step()
    xr.wait_device_ops()

    assert [buffer() for buffer in old] == [None] * 4
    needs = program.compiled.memory_analysis()
    # At its peak: what was alive at the barrier, new outputs (the gradients), XLA's own. Nothing is there twice.
    peak = in_use() + needs.output_size_in_bytes - needs.alias_size_in_bytes - gradients + needs.temp_size_in_bytes
    assert peak <= 1.1 * (training.bytes() + needs.temp_size_in_bytes)
    assert needs.alias_size_in_bytes >= training.bytes() - gradients - KiB


def test_what_somebody_else_shows_is_not_given_up() -> None:
    weight = torch.ones(8, device="xla")
    xr.sync()
    before = weight.clone()
    xr.sync()  # the same buffer
    weight.mul_(3.0)
    xr.sync()

    assert before.tolist() == [1.0] * 8
    assert weight.tolist() == [3.0] * 8


def test_a_dropped_model_is_freed() -> None:
    held = in_use()
    training = Training()
    training.step()
    training.step()
    assert in_use() > held
    gone = [weakref.ref(training.model), *map(weakref.ref, training.model.parameters())]
    del training
    gc.collect()  # an optimizer and its hooks refer to one another
    xr.wait_device_ops()

    assert [ref() for ref in gone] == [None] * len(gone)
    assert in_use() == held


# -- programs that never cut --------------------------------------------------------------------------


def test_inference_by_full_reads_keeps_nothing() -> None:
    model = nn.Linear(16, 4).to("xla").eval()

    @torch.no_grad()
    def answer() -> torch.Tensor:
        return model(torch.randn(8, 16).to("xla")).relu().cpu()

    answer()
    before, held = census(), in_use()
    with counted() as cost:
        for _ in range(20):
            assert answer().shape == (8, 4)

    assert in_use() == held
    assert census()[:2] == before[:2]
    assert (cost.compiles, cost.runs, cost.reads, cost["MarkStep"]) == (0, 20, 20, 0)


def test_what_is_pending_survives_a_full_read() -> None:
    x = torch.arange(4.0).to("xla")
    pending = x * 2.0
    read = x + 1.0
    assert read.cpu().tolist() == [1.0, 2.0, 3.0, 4.0]
    x.add_(10.0)
    assert pending.cpu().tolist() == [0.0, 2.0, 4.0, 6.0]
    assert x[1:].cpu().tolist() == [11.0, 12.0, 13.0]


def test_scalar_reads_shed_what_is_dead() -> None:
    weight = torch.full((8,), 0.5).to("xla")
    kept = weight * 7.0  # pending all the time, until the tape is cut
    total = 0.0
    with counted() as cost:
        for _ in range(130):
            x = torch.ones(8).to("xla")
            for _ in range(10):
                x = x * weight + 0.5
            total += x.sum().item()

    assert total == 130 * 8.0
    assert len(tapes.tape().arrays) < 130
    assert tapes.tape().node.depth < 1100
    assert cost["MarkStep"] == 0
    assert cost.reads == 130
    assert kept.tolist() == [3.5] * 8


def test_a_trace_is_cut_where_least_of_it_is_alive() -> None:
    """A cut within a pass would give its second half other graphs than all passes before it had."""
    weight = torch.full((8,), 0.5).to("xla")

    def one_pass(x: torch.Tensor) -> list[float]:
        parts = []
        for _ in range(12):
            x = x * weight + 0.5
            parts.append(x.sum())
            assert parts[-1].item() >= 0.0
        return torch.stack(parts).cpu().tolist()

    expected = one_pass(torch.ones(8).to("xla"))
    with counted() as cost:
        for _ in range(60):
            kept = torch.ones(8).to("xla")
            assert one_pass(kept) == expected
    assert cost.compiles <= 2
    assert tapes.tape().node.depth < 2000
