"""``torch.Generator`` for xla, the state of each device, and who seeds whom."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import xlaprof.runtime as xr

from .counting import counted


def generator(seed: int = 9) -> torch.Generator:
    return torch.Generator(device="xla").manual_seed(seed)


def rand(source: torch.Generator | None = None) -> torch.Tensor:
    return torch.rand(4, device="xla", generator=source)


def test_pytorch_makes_generators_for_xla() -> None:
    made = torch.Generator(device="xla")
    assert isinstance(made, torch.Generator)
    assert made.device == torch.device("xla:0")
    assert made.initial_seed() == torch.Generator().initial_seed()
    assert torch.Generator(torch.device("xla", 0)).device == torch.device("xla:0")
    assert type(xr.Generator()) is type(made)
    assert torch.Generator().device == torch.Generator("cpu").device == torch.device("cpu")
    assert type(torch.Generator()) is torch.Generator


def test_a_generator_is_a_stream_apart() -> None:
    torch.manual_seed(1)
    expected = rand()
    torch.manual_seed(1)
    mine = generator()
    a, b = rand(mine), rand(mine)
    assert torch.equal(rand(), expected)  # the device's own stream did not notice
    assert not torch.equal(a, b)
    mine.manual_seed(9)
    xr.sync()
    assert torch.equal(torch.stack([rand(mine), rand(mine)]), torch.stack([a, b]))
    assert not torch.equal(rand(generator(8)), a)


def test_a_seed_of_a_generator_is_no_new_graph() -> None:
    rand(generator(1)).tolist()
    with counted() as counts:
        rand(generator(2)).tolist()
    assert counts.compiles == 0


def test_a_generator_can_be_kept_copied_and_sent() -> None:
    mine = generator()
    rand(mine)
    state = mine.get_state()
    twins = [copy.deepcopy(mine), pickle.loads(pickle.dumps(mine)), mine.clone_state()]
    assert all(twin.device == mine.device for twin in twins)
    expected = rand(mine)
    mine.set_state(state)
    assert all(torch.equal(rand(each), expected) for each in (mine, *twins))


THREES: list[Callable[[torch.Tensor, Any], torch.Tensor]] = [
    lambda x, g: torch.ops.aten.rrelu(-x, 0.1, 0.9, True, g),  # it need not be a keyword argument
    lambda x, g: torch.bernoulli(x / 6, generator=g),
    lambda x, g: torch.multinomial(x, 5, replacement=True, generator=g),
    lambda x, g: torch.normal(x, 1.0, generator=g),
    lambda x, g: torch.empty_like(x).normal_(generator=g),
    lambda x, g: torch.empty_like(x).uniform_(generator=g),
    lambda x, g: torch.empty_like(x).random_(generator=g),
    lambda x, g: torch.empty_like(x).exponential_(generator=g),
    lambda x, g: torch.randperm(40, device="xla", generator=g),
    lambda x, g: torch.randint(40, (40,), device="xla", generator=g),
    lambda x, g: torch.randn(4, device="xla", generator=g),
    lambda x, g: torch.nn.init.trunc_normal_(torch.empty_like(x), generator=g),
]


@pytest.mark.slow
@pytest.mark.parametrize("source", [generator, lambda: torch.Generator().manual_seed(9)], ids=["xla", "host"])
def test_every_sampler_takes_one(source: Callable[[], torch.Generator]) -> None:
    x = torch.full((40,), 3.0, device="xla")
    before = torch.xla.get_rng_state()
    first = [draw(x, source()) for draw in THREES]
    again = [draw(x, source()) for draw in THREES]
    later = source()
    rand(later)
    others = [draw(x, later) for draw in THREES]
    xr.sync()
    assert torch.equal(torch.xla.get_rng_state(), before)
    for a, b, c in zip(first, again, others, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_a_generator_for_xla_is_refused_on_the_host() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'xla'"):
        torch.rand(3, generator=generator())
    with pytest.raises(RuntimeError, match="is for xla, not for cpu"):
        xr.Generator("cpu")


def test_the_seeds_of_pytorch_seed_the_device() -> None:
    torch.manual_seed(3)
    expected = rand()
    torch.random.manual_seed(3)
    assert torch.equal(rand(), expected)
    assert torch.xla.initial_seed() == torch.initial_seed() == 3
    seed = torch.seed()
    assert torch.xla.initial_seed() == seed
    assert not torch.equal(rand(), expected)
    torch.xla.manual_seed(3)
    assert torch.equal(rand(), expected)
    torch.manual_seed(-3)
    assert torch.xla.initial_seed() == torch.initial_seed()


def test_each_device_has_its_state() -> None:
    torch.manual_seed(5)
    assert torch.equal(torch.xla.get_rng_state("xla:0"), torch.xla.get_rng_state(1))  # the same numbers, anywhere
    rand()
    moved = torch.xla.get_rng_state(0)
    assert not torch.equal(moved, torch.xla.get_rng_state(1))
    torch.xla.set_rng_state(moved, device=1)
    assert torch.equal(torch.xla.get_rng_state(1), moved)
    assert torch.equal(torch.stack(torch.xla.get_rng_state_all())[0], moved)


def test_a_fork_leaves_the_state_as_it_was() -> None:
    torch.manual_seed(5)
    with torch.random.fork_rng(device_type="xla"):
        torch.manual_seed(6)
        inside = rand()
    outside = rand()
    torch.manual_seed(5)
    assert torch.equal(rand(), outside)
    assert not torch.equal(inside, outside)


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"RNG state must be a torch.ByteTensor, not torch.int64"):
        torch.xla.set_rng_state(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"RNG state of xla has 16 bytes .* not \[5056\]"):
        torch.xla.set_rng_state(torch.get_rng_state())
