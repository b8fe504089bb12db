"""Errors that are in the values: known on the host at once, on the device with ``debug_checks`` on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import xlaprof.runtime as xr

from ..counting import counted  # noqa: TID252


def there(values: object) -> torch.Tensor:
    return torch.tensor(values).to("xla")


def here(values: object) -> torch.Tensor:
    return torch.tensor(values)


PAGE = Path(__file__).parents[3] / "docs" / "runtime.md"
Make = Callable[[object], torch.Tensor]
#: an operation, and after a colon which of its arguments is wrong
MISTAKES: dict[str, Callable[[Make], object]] = {
    "index": lambda t: t([1.0, 2.0])[t([5])],
    "index_put": lambda t: t([1.0, 2.0]).clone().index_put_((t([-3]),), t([1.0]), accumulate=True),
    "index_select": lambda t: t([1.0, 2.0]).index_select(0, t([2])),
    "index_add": lambda t: t([1.0, 2.0]).index_add(0, t([2]), t([1.0])),
    "index_copy": lambda t: t([1.0, 2.0]).index_copy(0, t([2]), t([1.0])),
    "index_fill": lambda t: t([1.0, 2.0]).index_fill(0, t([2]), 1.0),
    "index_reduce": lambda t: t([1.0, 2.0]).index_reduce(0, t([2]), t([1.0]), "amax"),
    "gather": lambda t: t([[1.0, 2.0]]).gather(1, t([[-1]])),
    "scatter": lambda t: t([[1.0, 2.0]]).scatter(1, t([[2]]), 3.0),
    "scatter_add": lambda t: t([[1.0, 2.0]]).clone().scatter_add_(1, t([[2]]), t([[3.0]])),
    "scatter_reduce": lambda t: t([[1.0, 2.0]]).scatter_reduce(1, t([[2]]), t([[3.0]]), "amax"),
    "take": lambda t: t([1.0, 2.0]).take(t([2])),
    "put": lambda t: t([1.0, 2.0]).put(t([2]), t([1.0])),
    "embedding": lambda t: functional.embedding(t([0, 9]), t([[1.0], [2.0]])),
    "embedding_bag": lambda t: functional.embedding_bag(t([[0, 9]]), t([[1.0], [2.0]])),
    "embedding_bag: the first offset": lambda t: functional.embedding_bag(t([0, 1]), t([[1.0], [2.0]]), t([1])),
    "embedding_bag: the last offset": lambda t: functional.embedding_bag(t([0, 1]), t([[1.0], [2.0]]), t([0, 3])),
    "searchsorted": lambda t: torch.searchsorted(t([1.0, 2.0]), t([1.0]), sorter=t([5, 0])),
    "max_unpool2d": lambda t: functional.max_unpool2d(t([[[[1.0]]]]), t([[[[7]]]]), 2),
    "cross_entropy": lambda t: functional.cross_entropy(t([[1.0, 2.0]]), t([7])),
    "nll_loss": lambda t: functional.nll_loss(t([[[[1.0]], [[2.0]]]]), t([[[5]]])),
    "multi_margin_loss": lambda t: functional.multi_margin_loss(t([[1.0, 2.0]]), t([7])),
    "multilabel_margin_loss": lambda t: functional.multilabel_margin_loss(t([[1.0, 2.0]]), t([[7, -1]])),
    "one_hot": lambda t: functional.one_hot(t([0, 3]), 3),
    "one_hot: below nought": lambda t: functional.one_hot(t([0, -1])),
    "ctc_loss": lambda t: functional.ctc_loss(t([[[1.0, 2.0]]]), t([[1]]), t([9]), t([1])),
    "ctc_loss: labels": lambda t: functional.ctc_loss(t([[[1.0, 2.0]]]), t([[1]]), t([1]), t([2])),
    "ctc_loss: labels one after the other": lambda t: functional.ctc_loss(t([[[1.0, 2.0]]]), t([1, 1]), t([1]), t([1])),
    "segment_reduce": lambda t: torch.segment_reduce(t([1.0, 2.0]), "sum", lengths=t([5])),
    "segment_reduce: offsets": lambda t: torch.segment_reduce(t([1.0, 2.0]), "sum", offsets=t([0, 2, 1])),
    "lu_unpack": lambda t: torch.lu_unpack(t([[2.0, 1.0], [1.0, 2.0]]), t([3, 2]).int()),
    "bernoulli": lambda t: torch.bernoulli(t([1.5])),
    "bernoulli_": lambda t: t([0.0]).clone().bernoulli_(t([1.5])),
    "multinomial": lambda t: torch.multinomial(t([-1.0, 2.0]), 1),
    "poisson": lambda t: torch.poisson(t([-1.5])),
    "normal": lambda t: torch.normal(t([0.0]), t([-1.0])),
    "binary_cross_entropy": lambda t: functional.binary_cross_entropy(t([0.5]), t([1.5])),
    "floor_divide": lambda t: t([1]) // t([0]),
    "remainder": lambda t: 1 % t([0]),
    "fmod": lambda t: t([1]).fmod(t([0])),
    "div": lambda t: torch.div(t([1]), t([0]), rounding_mode="trunc"),
    "masked_scatter": lambda t: t([1.0, 2.0]).masked_scatter(t([True, True]), t([1.0])),
    "histc": lambda t: t([float("inf"), 1.0]).histc(4),
    "histogram": lambda t: torch.histogram(t([float("inf"), 1.0]), 4),
    "torch.cholesky": lambda t: torch.cholesky(t([[[1.0]], [[-1.0]]])),
    "linalg.svd": lambda t: torch.linalg.svd(t([[float("nan"), 1.0], [1.0, 1.0]])),
}
#: refused at the call, with checks and without: the runtime reads what it needs to know
AT_THE_CALL: dict[str, Callable[[Make], object]] = {
    "linalg.cholesky": lambda t: torch.linalg.cholesky(t([[-1.0]])),
    "linalg.inv": lambda t: torch.linalg.inv(t([[0.0]])),
    "linalg.solve": lambda t: torch.linalg.solve(t([[0.0]]), t([[1.0]])),
    "linalg.eig": lambda t: torch.linalg.eig(t([[float("nan"), 1.0], [1.0, 1.0]])),
    "linalg.lu_factor": lambda t: torch.linalg.lu_factor(t([[0.0]])),
    "bincount": lambda t: t([-1, 2]).bincount(),
    "repeat_interleave": lambda t: t([1.0, 2.0]).repeat_interleave(t([-1, 2])),
}


def read(result: object) -> None:
    for leaf in tree_leaves(result):
        leaf.cpu()


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("name", MISTAKES)
def test_debug_checks_raise_what_eager_pytorch_raises(name: str) -> None:
    mistake = MISTAKES[name]
    with pytest.raises((IndexError, RuntimeError)) as expected:
        mistake(here)
    with pytest.raises(type(expected.value)) as caught, xr.debug_checks():
        read(mistake(there))
    said, place = str(caught.value).rsplit(" (", 1)
    assert str(expected.value).startswith(said.removesuffix("...] is not finite"))
    assert f" at {__file__}:" in place
    read(mistake(there))  # off again: clamped, as on every XLA device


@pytest.mark.parametrize("name", AT_THE_CALL)
def test_what_is_read_anyhow_is_refused_at_the_call(name: str) -> None:
    with pytest.raises(RuntimeError) as expected:
        AT_THE_CALL[name](here)
    with pytest.raises(type(expected.value)) as caught:
        AT_THE_CALL[name](there)
    assert str(caught.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_the_page_has_all_of_them() -> None:
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and " at the call |" in line]
    checked = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| `debug_checks` |" in line]
    for lines, names in ((table, AT_THE_CALL), (checked, MISTAKES)):
        assert {name for line in lines for name in re.findall(r"`([\w.]+)`", line.split("|")[1])} == {
            name.split(":")[0] for name in names
        }


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
