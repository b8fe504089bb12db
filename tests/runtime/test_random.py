"""Random numbers: by seed, wherever barriers fall."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import xlaprof.runtime as xr

from .counting import counted


def draws(barrier: bool) -> list[list[float]]:
    torch.manual_seed(11)
    out = []
    for _ in range(3):
        a = torch.randn(4, device="xla")
        b = torch.rand(2, device="xla")
        if barrier:
            xr.sync()
        out += [a, b]
    return [t.tolist() for t in out]


def test_the_seed_decides_and_barriers_do_not() -> None:
    first = draws(barrier=True)
    assert draws(barrier=False) == first
    assert len({tuple(d) for d in first}) == len(first)


def test_a_new_seed_is_no_new_graph() -> None:
    def dropped(seed: int) -> list[float]:
        torch.manual_seed(seed)
        y = nn.functional.dropout(torch.ones(64, device="xla"), 0.5)
        xr.sync()
        return y.tolist()

    one = dropped(1)
    with counted() as counts:
        two = dropped(2)
    assert counts.compiles == 0
    assert one != two
    assert set(one) == {0.0, 2.0}


def test_an_early_read_draws_nothing_anew() -> None:
    torch.manual_seed(5)
    expected = torch.randn(2, 3, device="xla").tolist()
    torch.manual_seed(5)
    noise = torch.randn(2, 3, device="xla")
    torch.testing.assert_close(noise.sum().item(), sum(map(sum, expected)))
    xr.sync()
    assert noise.tolist() == expected


def test_the_state_can_be_kept_and_restored() -> None:
    torch.manual_seed(3)
    torch.rand(2, device="xla")
    state = xr.get_rng_state()
    a = torch.rand(2, device="xla").tolist()
    xr.set_rng_state(state)
    assert torch.rand(2, device="xla").tolist() == a


def test_checkpointing_replays_the_same_dropout() -> None:
    torch.manual_seed(0)
    x = torch.ones(32, device="xla", requires_grad=True)
    y = checkpoint(lambda t: nn.functional.dropout(t, 0.5), x, use_reentrant=False)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), y.detach().cpu())


def test_distributions_have_their_moments() -> None:
    torch.manual_seed(0)
    n = 40_000
    normal = torch.empty(n, device="xla").normal_(2.0, 3.0).cpu()
    uniform = torch.empty(n, device="xla").uniform_(-1.0, 1.0).cpu()
    coins = torch.full((n,), 0.3, device="xla").bernoulli().cpu()
    assert abs(normal.mean().item() - 2) < 0.1
    assert abs(normal.std().item() - 3) < 0.1
    assert abs(uniform.mean().item()) < 0.02
    assert uniform.min() >= -1
    assert uniform.max() < 1
    assert abs(coins.mean().item() - 0.3) < 0.02
    order = torch.randperm(100, device="xla").tolist()
    assert sorted(order) == list(range(100)) != order


def test_host_random_numbers_do_not_depend_on_the_device() -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    torch.rand(5, device="xla").cpu()
    assert torch.equal(torch.rand(3), expected)
