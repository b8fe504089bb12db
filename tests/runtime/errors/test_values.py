"""Errors that are in the values: known on the host at once, on the device with ``debug_checks`` on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import xlaprof.runtime as xr

from ..counting import counted  # noqa: TID252


def there(values: object) -> torch.Tensor:
    return torch.tensor(values).to("xla")


def here(values: object) -> torch.Tensor:
    return torch.tensor(values)


Make = Callable[[object], torch.Tensor]
MISTAKES: dict[str, Callable[[Make], torch.Tensor]] = {
    "index": lambda t: t([1.0, 2.0])[t([5])],
    "index_put": lambda t: t([1.0, 2.0]).clone().index_put_((t([-3]),), t([1.0])),
    "index_select": lambda t: t([1.0, 2.0]).index_select(0, t([2])),
    "embedding": lambda t: functional.embedding(t([0, 9]), t([[1.0], [2.0]])),
    "gather": lambda t: t([[1.0, 2.0]]).gather(1, t([[-1]])),
    "scatter": lambda t: t([[1.0, 2.0]]).scatter(1, t([[2]]), 3.0),
    "take": lambda t: t([1.0, 2.0]).take(t([2])),
    "cross_entropy": lambda t: functional.cross_entropy(t([[1.0, 2.0]]), t([7])),
    "multinomial": lambda t: torch.multinomial(t([-1.0, 2.0]), 1),
    "bernoulli": lambda t: torch.bernoulli(t([1.5])),
    "integer division": lambda t: t([1]) // t([0]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_debug_checks_raise_what_eager_pytorch_raises(name: str) -> None:
    mistake = MISTAKES[name]
    with pytest.raises((IndexError, RuntimeError)) as expected:
        mistake(here)
    with pytest.raises(type(expected.value)) as caught, xr.debug_checks():
        mistake(there).cpu()
    said, place = str(caught.value).rsplit(" (", 1)
    assert str(expected.value).startswith(said)
    assert f" at {__file__}:" in place
    mistake(there).cpu()  # off again: clamped, as on every XLA device


def test_the_error_comes_where_the_host_next_waits() -> None:
    table, good = there([[1.0], [2.0]]), there([1, 0])
    xr.sync()
    with xr.debug_checks():
        row = table[there([3])]
        with pytest.raises(IndexError, match=r"index 3 is out of bounds for dimension 0 with size 2 \(aten::index at"):
            xr.sync(wait=True)
        xr.sync(wait=True)  # told once
        assert table[good].tolist() == [[2.0], [1.0]]
        again = table[there([3])]
        with pytest.raises(IndexError, match="index 3 is out of bounds"):
            again.tolist()
        with pytest.raises(IndexError, match="index 3 is out of bounds"):  # however often
            again.tolist()
    assert row.shape == (1, 1)


def test_targets_to_ignore_are_no_mistake() -> None:
    with xr.debug_checks():
        loss = functional.cross_entropy(there([[0.0, 0.0], [1.0, 2.0]]), there([1, -100]))
        assert loss.item() == pytest.approx(0.6931472)


def test_programs_without_checks_are_the_ones_from_before() -> None:
    table, index = there([[1.0]] * 7), there([1, 0, 6])

    def run() -> None:
        table[index].cpu()

    run()
    with counted() as counts:
        with xr.debug_checks():
            run()
        run()
    assert counts.compiles == 1  # the one with the checks


def test_positions_known_on_the_host_are_checked_at_once() -> None:
    x = there([1.0, 2.0, 3.0])
    for call in (
        lambda: x[3],
        lambda: x[torch.tensor([0, -4])],
        lambda: x.clone().index_put_((here([3]),), there(1.0)),
    ):
        with pytest.raises(IndexError, match="is out of bounds for dimension 0 with size 3"):
            call()
    assert x[torch.tensor([-3])].tolist() == [1.0]
