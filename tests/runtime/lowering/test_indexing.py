"""Indexing, gather, scatter, masks and embeddings: PyTorch's rules where NumPy, XLA or intuition say otherwise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlaprof.runtime.lowering.registry import LOWERINGS, Aval, Ctx

from .harness import check


@settings(max_examples=8)
@given(st.data())
def test_any_mixture_of_indices_and_whole_dimensions(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    common = data.draw(st.sampled_from([(), (3,), (2, 1), (2, 3)]))
    indices: list[torch.Tensor | None] = []
    for size in shape[: data.draw(st.integers(1, len(shape)))]:
        if data.draw(st.booleans()):
            indices.append(None)
        else:
            own = data.draw(st.sampled_from([common, common[1:]]))
            indices.append(torch.randint(-size, size, own))
    if all(i is None for i in indices):
        indices[0] = torch.randint(-shape[0], shape[0], common)
    x = torch.arange(float(torch.tensor(shape).prod())).reshape(shape)

    def story() -> None:
        taken = torch.ops.aten.index.Tensor(x, indices)
        torch.ops.aten.index_put(x, indices, torch.ones_like(taken), True)
        torch.ops.aten.index_put(x, indices, torch.tensor(7.0))

    check(story)


def test_writes_that_meet_add_up_when_asked_to() -> None:
    def story() -> None:
        x, i = torch.zeros(4, 3), torch.tensor([1, 1, -3, 2])
        x.index_put_((i,), torch.ones(4, 3), accumulate=True)
        assert x[1, 0] == 3
        x[:, torch.tensor([0, 2])] = torch.randn(2)
        x.index_add_(0, i % 4, torch.randn(4, 3), alpha=2.5)
        torch.zeros(3, dtype=torch.bool).index_put_((i % 3,), torch.ones(4, dtype=torch.bool), accumulate=True)

    check(story)


def test_a_mask_can_be_written_through_whatever_it_selects() -> None:
    def story() -> None:
        x, mask = torch.randn(3, 4), torch.tensor([[1, 0, 1, 1], [0, 0, 0, 1], [1, 0, 0, 0]], dtype=torch.bool)
        x[mask] = 0.5
        x[mask] = torch.arange(5.0)
        x[mask] = torch.tensor([2.5])
        x.index_put_((mask,), torch.arange(5.0), accumulate=True)
        x[mask[:, 0]] = torch.randn(2, 4)
        x[:, mask[0]] = torch.randn(3, 3)
        x[:, mask[0]] = torch.randn(3)
        x[:, mask[0]] = torch.randn(3, 1)
        x[torch.zeros(3, dtype=torch.bool)] = torch.randn(0, 4)
        y = torch.randn(2, 3, 4, 2)
        y[:, mask] = torch.randn(5, 2)
        y[:, mask] = torch.randn(2, 1, 2)
        x.masked_scatter_(mask, torch.arange(8.0))
        x.masked_fill_(mask, float("-inf"))
        x.masked_fill(mask[:, :1], torch.tensor(3))

    assert not check(story).declined


def test_what_a_mask_reads_has_no_shape_before_it_runs() -> None:
    def story() -> None:
        x, mask = torch.randn(3), torch.tensor([True, False, True])
        x[mask]
        x[mask] = torch.zeros(2)

    checker = check(story)
    assert checker.declined == {"aten.index.Tensor": 1}
    assert checker.checked["aten.index_put.default"] == 1


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
def test_scatter_uses_only_the_part_of_the_source_that_the_index_covers() -> None:
    def story() -> None:
        x, src = torch.randn(4, 5), torch.randn(6, 6)
        i = torch.tensor([[0, 3, 3], [1, 1, 2]])
        x.scatter(0, i, src)
        x.scatter(-1, i, src)
        x.scatter(1, i, 2.5)
        x.scatter_add(0, i, src)
        x.gather(0, i)
        x.gather(1, i)
        x.scatter(0, i, src, reduce="add")
        x.scatter(0, i, 3.5, reduce="multiply")
        torch.tensor(2.0).scatter(0, torch.tensor(0), torch.tensor(5.0))
        torch.tensor(2.0).gather(0, torch.tensor([0, 0]))
        x.gather(0, torch.zeros(0, 3, dtype=torch.int64))

    check(story)


def test_of_duplicates_the_last_wins() -> None:
    def story() -> None:
        torch.zeros(3).scatter(0, torch.tensor([1, 1, 1, 0]), torch.tensor([5.0, 6.0, 7.0, 8.0]))
        torch.zeros(3).index_copy(0, torch.tensor([2, 2]), torch.tensor([1.0, 2.0]))
        torch.zeros(3).put(torch.tensor([-1, 2]), torch.tensor([1.0, 2.0]))

    check(story)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_reductions_into_a_tensor(reduce: str, include_self: bool) -> None:
    def story() -> None:
        i = torch.tensor([[0, 2, 0], [0, 0, 2]])
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            x, src = torch.randint(-9, 9, (4, 3)).to(dtype), torch.randint(-9, 9, (2, 3)).to(dtype)
            x.scatter_reduce(0, i, src, reduce, include_self=include_self)
            if reduce != "sum":
                x.index_reduce(1, torch.tensor([2, 2]), src.new_ones(4, 2), reduce, include_self=include_self)
        bad = torch.tensor([[float("nan"), 1.0, -1.0]])
        torch.zeros(1, 3).scatter_reduce(1, torch.tensor([[0, 0, 1]]), bad, reduce, include_self=include_self)

    check(story)


def test_dimensions_of_no_size_and_tensors_of_no_dimension() -> None:
    def story() -> None:
        torch.randn(0, 3)[torch.zeros(0, dtype=torch.int64)]
        torch.randn(3, 0).index_select(0, torch.tensor([2, 0]))
        x = torch.tensor(1.5)
        x.index_select(0, torch.tensor([0]))
        x.index_add(0, torch.tensor([0]), torch.tensor(2.0), alpha=3)
        x.index_fill(0, torch.tensor([0]), 2.5)
        x.index_copy(0, torch.tensor(0), torch.tensor(4.0))
        torch.randn(2, 3).take(torch.tensor([-1, 0, 5]))

    check(story)


def test_out_of_range_reads_clamp_and_writes_vanish() -> None:
    with jax.enable_x64(True):
        x, i = jnp.arange(3.0), jnp.asarray([1, 9])
        ctx = Ctx((Aval((2,), torch.float64),))
        for name, args in (
            ("aten.index.Tensor", (x, (i,))),
            ("aten.gather.default", (x, 0, i)),
            ("aten.index_select.default", (x, 0, i)),
            ("aten.take.default", (x, i)),
            ("aten.embedding.default", (x, i)),
        ):
            assert LOWERINGS[name](ctx, *args).tolist() == [1.0, 2.0], name
        new = jnp.asarray([7.0, 8.0])
        for name, args in (
            ("aten.index_put.default", (x, (i,), new)),
            ("aten.scatter.src", (x, 0, i, new)),
            ("aten.index_copy.default", (x, 0, i, new)),
            ("aten.put.default", (x, i, new)),
        ):
            assert LOWERINGS[name](ctx, *args).tolist() == [0.0, 7.0, 2.0], name


def test_places_in_sorted_sequences() -> None:
    def story() -> None:
        edges = torch.tensor([1.0, 2.0, 2.0, 5.0])
        x = torch.tensor([[0.5, 2.0], [5.0, 9.0], [float("nan"), float("inf")]])
        for right in (False, True):
            torch.bucketize(x, edges, right=right)
            torch.bucketize(2.0, edges, right=right, out_int32=True)
            torch.searchsorted(edges, x, right=right)
        rows = torch.randn(3, 6)
        torch.searchsorted(rows.sort().values, x)
        torch.searchsorted(rows, x, sorter=rows.argsort(stable=True), side="right")
        torch.searchsorted(torch.arange(0, 50, 5), torch.tensor([2**40, -3, 20]))

    check(story)


def test_embedding_gradients_skip_padding_and_can_share_by_frequency() -> None:
    def story() -> None:
        for dtype in (torch.float32, torch.bfloat16):
            table = torch.randn(5, 3, dtype=dtype, requires_grad=True)
            i = torch.tensor([[0, 2, 2], [4, 2, 1]])
            for options in ({}, {"padding_idx": 2}, {"scale_grad_by_freq": True}, {"padding_idx": -5}):
                torch.nn.functional.embedding(i, table, **options).square().sum().backward()

    checked = check(story).checked
    assert checked["aten.embedding_dense_backward.default"] == 8


def test_the_rows_of_a_static_nonzero_and_of_repeats() -> None:
    def story() -> None:
        x = torch.tensor([[0, 1], [2, 0], [3, 4]])
        torch.nonzero_static(x, size=3)
        torch.nonzero_static(x, size=6, fill_value=-7)
        torch.repeat_interleave(torch.tensor([2, 0, 3]), output_size=5)

    check(story)


def test_searching_no_rows() -> None:
    def story() -> None:
        torch.searchsorted(torch.zeros(0, 0), torch.zeros(0, 0))
        torch.searchsorted(torch.zeros(0, 3), torch.zeros(0, 2), right=True)
        torch.searchsorted(torch.zeros(2, 0), torch.ones(2, 3))

    assert check(story).checked["aten.searchsorted.Tensor"] == 3
