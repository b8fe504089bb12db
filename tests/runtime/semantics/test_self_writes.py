"""A tensor's values written back to another place of it: what XLA:CPU miscompiles, and what is done about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import torch
from jax import lax

import xlaprof.runtime as xr
from xlaprof.runtime.trace import evaluate
from xlaprof.runtime.trace.self_writes import self_writes
from xlaprof.runtime.trace.trie import Node

PAGE = Path(__file__).parents[3] / "docs" / "xla-self-writes.md"

Change = Callable[[jax.Array], jax.Array]
Write = Callable[[torch.Tensor], object]
Read = Callable[[torch.Tensor], torch.Tensor]


def _reverse_column(x: torch.Tensor) -> None:
    x[:, 0] = x[:, 0].flip(0)


def _roll_column(x: torch.Tensor) -> None:
    x[:, 1] = x[:, 1].roll(1)


def _permute_column(x: torch.Tensor) -> None:
    x[:, 0] = x[:, 0][torch.tensor([2, 0, 1], device=x.device)]


def _shift_rows(x: torch.Tensor) -> None:
    x[1:] = x[:-1].clone()


def _shift_and_scale(x: torch.Tensor) -> None:
    x[1:] = x[:-1] * 2 + 1


def _two_columns(x: torch.Tensor) -> None:
    x[:, 0] = x[:, 1].flip(0)
    x[:, 1] = x[:, 0].flip(0)


def _functional(x: torch.Tensor) -> None:
    x.copy_(torch.slice_scatter(x, x[:2], 0, 1))


def _through_a_view(x: torch.Tensor) -> None:
    x.t()[0] = x.t()[0].flip(0)


WRITES = (
    _reverse_column, _roll_column, _permute_column, _shift_rows, _shift_and_scale, _two_columns, _functional,
    _through_a_view,
)  # fmt: skip
READS: dict[str, Read] = {
    "unsqueeze": lambda x: x.unsqueeze(0),
    "None": lambda x: x[None],
    "reshape": lambda x: x.reshape(1, 3, 4),
    "as it is": lambda x: x,
}


def _on(device: str, write: Write, read: Read) -> torch.Tensor:
    x = torch.arange(12.0).to(device).reshape(3, 4)
    xr.sync()
    write(x)
    return read(x).cpu()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_is_what_was_there_before(write: Write, read: str) -> None:
    torch.testing.assert_close(_on("xla", write, READS[read]), _on("cpu", write, READS[read]), rtol=0, atol=0)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many such writes the graphs have that are compiled during the test."""
    counts: list[int] = []

    def counted(nodes: Sequence[Node]) -> set[Node]:
        writes = self_writes(nodes)
        counts.append(len(writes))
        return writes

    monkeypatch.setattr(evaluate, "self_writes", counted)
    return counts


@pytest.mark.parametrize(
    ("count", "write"),
    [
        (1, _reverse_column),
        (1, _shift_and_scale),
        (2, _two_columns),
        (0, lambda x: x[0].mul_(2)),  # each element is read where it is written
        (0, lambda x: x[:, 1:3].add_(x[:, 1:3] * 2)),
        (0, lambda x: x[0].copy_(torch.arange(4.0, device="xla").flip(0))),  # of another tensor
        (1, lambda x: x[:, 0].copy_(x.sum(1))),
    ],
)
def test_only_writes_from_another_place_of_the_same_tensor_are_no_updates_in_place(
    found: list[int], count: int, write: Write
) -> None:
    x = torch.ones(3, 4, device="xla")
    xr.sync()
    write(x)
    xr.sync()
    assert found[-1] == count


def test_a_cache_that_is_filled_row_by_row_is_updated_in_place(found: list[int]) -> None:
    caches = [torch.zeros(4, 8, device="xla") for _ in range(3)]
    weight, x = torch.ones(8, 8, device="xla"), torch.ones(8, device="xla")
    xr.sync()
    for at in range(2):
        for cache in caches:  # of one layer each
            cache[at] = x @ weight
            x = torch.softmax(cache[: at + 1] @ x, 0) @ cache[: at + 1]
        xr.sync()
        assert found[-1] == 0


def test_plain_jax_has_the_mistake_still(capsys: pytest.CaptureFixture[str]) -> None:
    """When this fails, XLA is mended: then xlaprof/runtime/trace/self_writes.py and docs/xla-self-writes.md can go."""
    exec(PAGE.read_text().split("```python\n")[1].split("```")[0], {"__name__": "page"})
    assert capsys.readouterr().out.splitlines() == ["[8. 4. 0.]", "[8. 4. 8.]"]


X = jnp.arange(12.0).reshape(3, 4)


def _reversed_first_column(x: jax.Array) -> jax.Array:
    return lax.rev(x[:, 0:1], (0,))


#: the page's table: what is wrong, and what is right
WRONG: tuple[Change, ...] = (
    lambda x: lax.dynamic_update_slice(x, _reversed_first_column(x), (0, 0))[None],
    lambda x: lax.dynamic_update_slice(x, _reversed_first_column(x), (0, 0)).reshape(1, 3, 4),
    lambda x: lax.dynamic_update_slice(x, lax.optimization_barrier(_reversed_first_column(x)), (0, 0))[None],
    lambda x: lax.dynamic_update_slice(x, x[:-1], (1, 0))[None],
)
RIGHT: tuple[Change, ...] = (
    lambda x: lax.dynamic_update_slice(x, _reversed_first_column(x), (0, 0)),
    lambda x: lax.optimization_barrier(lax.dynamic_update_slice(x, _reversed_first_column(x), (0, 0)))[None],
    lambda x: lax.dynamic_update_slice(x, _reversed_first_column(x), (0, 0)) + 0,
    lambda x: jnp.where(lax.broadcasted_iota(jnp.int32, (3, 4), 1) == 0, _reversed_first_column(x), x)[None],
)


@pytest.mark.parametrize(("changes", "right"), [(WRONG, False), (RIGHT, True)])
def test_the_forms_of_it_that_the_page_names(changes: Sequence[Change], right: bool) -> None:
    assert [bool((jax.jit(change)(X) == change(X)).all()) for change in changes] == [right] * len(changes)
    assert (jax.jit(RIGHT[0], donate_argnums=0)(X.copy()) == RIGHT[0](X)).all()
