"""The tape: what is one graph, what is another, and when anything runs.

The rules are PyTorch/XLA's, as its own counters show them.
"""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.trace.trie import Node, prune

from .counting import counted


@pytest.fixture(autouse=True)
def _nothing_pending() -> None:
    xr.sync(wait=True)


def on_device(*values: float) -> torch.Tensor:
    x = torch.tensor(values).to("xla")
    xr.sync()
    return x


def test_nothing_runs_before_the_barrier() -> None:
    x = on_device(1.0, 2.0)
    with counted() as counts:
        y = (x * 3 + 2).relu()
    assert (counts.compiles, counts.runs) == (0, 0)
    with counted() as counts:
        xr.sync()
    assert (counts.compiles, counts.runs, counts["MarkStep"]) == (1, 1, 1)
    assert y.tolist() == [5.0, 8.0]


def test_what_a_view_showed_lives_no_longer_than_its_tensors() -> None:
    x = on_device(1.0, 2.0, 3.0, 4.0)
    hidden = x.exp()
    total = hidden.view(2, 2).sum(1)
    del hidden
    with counted() as counts:
        xr.sync()
    assert counts["CreateDataHandles"] == 1  # the total; what was viewed is no output of the graph
    assert total.shape == (2,)


def test_the_same_operations_again_are_the_same_program() -> None:
    x = on_device(1.0, 2.0)

    def step() -> torch.Tensor:
        y = x.sin() + x.cos()
        xr.sync()
        return y

    step()
    with counted() as counts:
        for _ in range(5):
            step()
    assert (counts.compiles, counts.runs, counts["CachedCompile"]) == (0, 5, 5)


def test_a_barrier_with_nothing_pending_runs_nothing() -> None:
    with counted() as counts:
        xr.sync()
    assert (counts["MarkStep"], counts.runs) == (1, 0)


def test_what_nobody_holds_is_not_run() -> None:
    x = on_device(1.0, 2.0)
    with counted() as counts:
        _ = x.exp()
        del _
        xr.sync()
    assert counts.runs == 0


def test_which_tensors_live_is_part_of_a_graph() -> None:
    x = on_device(0.5, 0.25)

    def step(keep: bool) -> list[torch.Tensor]:
        a = x.tan()
        b = a.atan()
        held = [a, b] if keep else [b]
        del a, b
        xr.sync()
        return held

    step(keep=False)
    with counted() as counts:
        step(keep=True)
    assert counts.compiles == 1


def test_the_same_subgraph_recorded_elsewhere_is_found() -> None:
    x = on_device(1.5, 2.5)
    y = x.sinh()
    xr.sync()
    with counted() as counts:
        dead = x.cosh()  # recorded first, held by nobody at the barrier
        y = x.sinh()
        del dead
        xr.sync()
    assert (counts.compiles, counts.runs) == (0, 1)
    assert y.shape == (2,)


# -- scalars -------------------------------------------------------------------------------------------


def test_the_order_in_which_operations_were_recorded_is_no_part_of_a_program() -> None:
    a, b, one, other = on_device(1.0, 2.0), on_device(3.0), 2.5, 0.5

    def step(names: str) -> tuple[list[float], ...]:
        made = {}
        for name in names:
            made[name] = {"s": lambda: a.sin() * one, "c": lambda: b.cos() + other, "e": lambda: (a * b).exp()}[name]()
        xr.sync()
        return tuple(made[name].tolist() for name in "sce")

    expected = step("sce")
    with counted() as counts:
        assert [step(names) for names in ("ces", "esc", "sec")] == [expected] * 3
    assert (counts.compiles, counts.runs) == (0, 3)


def test_the_order_of_random_numbers_is() -> None:
    x = on_device(*[0.5] * 8)

    def step(first: str, second: str) -> dict[str, list[float]]:
        torch.manual_seed(0)
        made = {name: getattr(torch, name)(x) for name in (first, second)}
        xr.sync()
        return {name: value.tolist() for name, value in made.items()}

    drawn = step("rand_like", "bernoulli")
    with counted() as counts:
        swapped = step("bernoulli", "rand_like")
    assert counts.compiles == 1
    assert swapped["rand_like"] != drawn["rand_like"]  # by the second seed, as PyTorch draws them
    assert step("rand_like", "bernoulli") == drawn


def test_a_number_is_an_input() -> None:
    xr.clear_compile_cache()  # another test may have multiplied two numbers by a third
    x = on_device(1.0, 2.0)
    results = []
    with counted() as counts:
        for rate in (0.5, 0.25, 0.125):
            y = x * rate
            xr.sync()
            results.append(y.tolist())
    assert counts.compiles == 1
    assert results == [[0.5, 1.0], [0.25, 0.5], [0.125, 0.25]]


@pytest.mark.parametrize("special", [0, 1, -1, 0.0, 1.0, -1.0, -0.0])
def test_zero_and_plus_minus_one_are_constants(special: float) -> None:
    x = on_device(7.0, float(special) + 3.25)  # another value, the same graph per constant
    y = x * 5.5
    xr.sync()
    with counted() as counts:
        y = x * special
        xr.sync()
    with counted() as again:
        y = x * 6.5
        xr.sync()
    assert counts.compiles <= 1
    assert again.compiles == 0
    assert y.shape == (2,)


def test_zero_and_minus_zero_are_two_constants() -> None:
    x = on_device(1.0)
    assert str((x * 0.0).item()) == "0.0"
    assert str((x * -0.0).item()) == "-0.0"


def test_equal_numbers_share_an_input_so_numbers_that_part_are_another_graph() -> None:
    a, b = on_device(1.0), on_device(2.0)

    def step(p: float, q: float) -> float:
        y = a * p + b * q
        xr.sync()
        return float(y)

    assert step(0.5, 0.5) == 1.5
    with counted() as counts:
        assert step(0.5, 0.75) == 2.0
    assert counts.compiles == 1
    with counted() as counts:
        assert step(0.25, 0.75) == 1.75
        assert step(0.75, 0.75) == 2.25
    assert counts.compiles == 0


def test_equal_arguments_of_one_operation_after_different_ones() -> None:
    x = torch.arange(5.0)
    on_device = x.to("xla")
    between, at = on_device.clamp(1.25, 2.5), on_device.clamp(1.75, 1.75)
    again = on_device.clamp(0.25, 3.5)
    torch.testing.assert_close([between.cpu(), at.cpu()], [x.clamp(1.25, 2.5), x.clamp(1.75, 1.75)])
    torch.testing.assert_close(again.cpu(), x.clamp(0.25, 3.5))


def test_a_number_already_there_is_not_sent_again() -> None:
    x = on_device(1.0)
    y = x * 0.3
    xr.sync()
    with counted() as counts:
        for _ in range(3):
            y = x * 0.3
            xr.sync()
    assert counts["TransferToDeviceTime"] == 0
    assert y.shape == (1,)


def test_exponents_are_part_of_the_graph() -> None:
    x = on_device(3.0)
    results = []
    with counted() as counts:
        for exponent in (2.5, 3.5):
            y = x.pow(exponent)
            xr.sync()
            results.append(y.item())
    assert counts.compiles == 2
    assert results == pytest.approx([3.0**2.5, 3.0**3.5])


def test_a_0_dim_host_tensor_is_a_number_and_a_1_dim_one_an_input() -> None:
    with counted() as counts:
        t = torch.tensor(1.0).to("xla")
        xr.sync()
    assert counts["TransferToDeviceTime"] == 0  # 1 is a constant
    with counted() as counts:
        t = torch.tensor([1.0]).to("xla")
        xr.sync()
    assert (counts["TransferToDeviceTime"], counts.runs) == (1, 0)
    assert t.item() == 1.0


# -- reads ---------------------------------------------------------------------------------------------


def test_a_scalar_read_runs_one_value_and_keeps_the_tensor_pending() -> None:
    x = on_device(1.0, 2.0)
    loss = (x * 2.5).sum()
    with counted() as counts:
        assert loss.item() == 7.5
        assert loss.item() == 7.5
        xr.sync()
    assert counts.runs == 3
    assert counts.reads == 2
    assert counts["aten::_local_scalar_dense"] == 2


def test_a_full_read_materialises() -> None:
    x = on_device(1.0, 2.0)
    y = x * 3.5
    with counted() as counts:
        assert y.tolist() == [3.5, 7.0]
        assert y.cpu().tolist() == [3.5, 7.0]
        xr.sync()
    assert counts.runs == 1
    assert counts.reads == 2
    assert counts["aten::_local_scalar_dense"] == 0


def test_what_follows_a_read_continues_the_graph() -> None:
    x = on_device(1.0, 2.0)
    y = x * 3.5
    total = y.sum().item()
    z = y + total
    xr.sync()
    assert z.tolist() == [14.0, 17.5]


def test_writes_after_an_early_read_are_seen() -> None:
    x = on_device(1.0, 2.0)
    x.add_(1)
    assert x.cpu().tolist() == [2.0, 3.0]
    x.mul_(10)
    assert x.tolist() == [20.0, 30.0]


# -- in place ------------------------------------------------------------------------------------------


def test_writing_in_place_is_seen_by_every_handle() -> None:
    x = on_device(1.0, 2.0)
    alias = x.detach()
    x.add_(5)
    xr.sync()
    assert alias.tolist() == [6.0, 7.0]
    alias.zero_()
    assert x.tolist() == [0.0, 0.0]


def test_copying_within_the_device_is_no_operation() -> None:
    source, target = on_device(1.0, 2.0), on_device(0.0, 0.0)
    with counted() as counts:
        target.copy_(source)
        xr.sync()
    assert counts.runs == 0
    target.add_(1)
    xr.sync()
    assert (source.tolist(), target.tolist()) == ([1.0, 2.0], [2.0, 3.0])


def test_overwritten_buffers_are_given_up_to_the_program() -> None:
    x = torch.ones(256, 256).to("xla")
    xr.sync()
    old = x._storage.array
    x.mul_(1.5)
    xr.sync(wait=True)
    # Held here too, so it had to be copied, not given up.
    assert not old.is_deleted()
    del old
    held = x._storage
    before = held.array.unsafe_buffer_pointer()
    x.mul_(1.5)
    xr.sync(wait=True)
    assert held.array.unsafe_buffer_pointer() == before
    assert x.cpu().unique().tolist() == [2.25]


def test_a_buffer_shown_by_two_tensors_is_not_given_up() -> None:
    a, b = on_device(1.0, 2.0), on_device(0.0, 0.0)
    b.copy_(a)
    xr.sync()
    b.add_(1)
    xr.sync()
    assert (a.tolist(), b.tolist()) == ([1.0, 2.0], [2.0, 3.0])


# -- training ------------------------------------------------------------------------------------------


def train(optimizer: type[torch.optim.Optimizer], steps: int, device: str, **options: float) -> list[float]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(device)
    opt = optimizer(model.parameters(), **options)  # type: ignore[arg-type]
    x, y = torch.randn(8, 6).to(device), torch.randint(0, 3, (8,)).to(device)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if device == "xla":
            xr.sync()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 1e-2}),
        (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
        (torch.optim.RMSprop, {"lr": 1e-2}),
        (torch.optim.Adagrad, {"lr": 1e-2}),
    ],
)
def test_optimizers_train_as_on_the_cpu(optimizer: type[torch.optim.Optimizer], options: dict[str, float]) -> None:
    expected = train(optimizer, 12, "cpu", **options)
    assert train(optimizer, 12, "xla", **options) == pytest.approx(expected, abs=1e-5)


def test_adam_compiles_once_and_then_never_again() -> None:
    xr.clear_compile_cache()
    with counted() as counts:
        train(torch.optim.Adam, 2, "xla", lr=3e-3)
    with counted() as more:
        train(torch.optim.Adam, 12, "xla", lr=1e-3)
    assert counts["UncachedCompile"] == 1
    assert more["UncachedCompile"] == 0


# -- threads and failures ------------------------------------------------------------------------------


def test_threads_record_on_one_tape() -> None:
    x = on_device(1.0)
    results: dict[int, torch.Tensor] = {}

    def work(i: int) -> None:
        y = x
        for _ in range(50):
            y = y + float(i + 2)
        results[i] = y

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    xr.sync()
    assert {i: y.item() for i, y in results.items()} == {i: 1.0 + 50 * (i + 2) for i in range(4)}


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), max_size=12), st.integers(1, 30))
def test_a_trie_is_pruned_to_what_was_used_last(paths: list[list[str]], keep: int) -> None:
    root = Node(None, None, None)
    for age, path in enumerate(paths, start=1):
        node = root
        for key in path:
            if key not in node.edges:
                node.edges[key] = Node(node, key, None)
            node = node.edges[key]
        node.last_used = age

    def count(node: Node) -> int:
        return 1 + sum(count(edge) for edge in node.edges.values())

    everything = count(root)
    left = prune(root, keep)
    assert left == count(root)
    assert left <= max(keep, 1)
    if everything <= keep:
        assert left == everything
    elif paths and keep > len(paths[-1]):
        node = root  # there was room for the latest path, so it is there
        for key in paths[-1]:
            node = node.edges[key]


def test_a_pruned_trie_records_on() -> None:
    x = on_device(1.0)
    tape = xr._tapes.tape()
    tape.nodes = prune(tape.root, 1)
    assert tape.nodes == 1
    y = x * 0.5
    xr.sync()
    assert y.item() == 0.5


def test_a_forgotten_program_is_compiled_again_and_said_to_be() -> None:
    from xlaprof.runtime.execution.program import cache

    x = on_device(1.0, 2.0)

    def step() -> None:
        y = x.erf() + x.erfc()
        xr.sync()
        del y

    step()
    limit, cache.limit = cache.limit, 1
    try:
        y = x.lgamma()  # pushes it out
        xr.sync()
        assert y.shape == (2,)
        with counted() as counts:
            step()
        assert counts.compiles == 1
    finally:
        cache.limit = limit
