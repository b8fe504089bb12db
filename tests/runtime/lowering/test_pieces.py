"""Gradients of views, and pieces written into a copy of the whole."""

from __future__ import annotations

import torch

from .harness import check


def test_gradients_of_views_land_where_the_view_was() -> None:
    x = torch.randn(4, 5, 6, requires_grad=True)

    def story() -> None:
        pieces = (
            x[1],
            x[-1, :, 2],
            x[:, 1:4],
            x[:, ::2, -3:],
            x[3:1],
            x[:, 7:],
            x.diagonal(1, 0, 2),
            x.diagonal(-2, 2, 1),
            x.unfold(1, 3, 2),
            x.unfold(-1, 2, 1),
            *x.split(2, 1),
            *x.unsafe_split(4, -1),
            *x.unsafe_split_with_sizes([1, 3], 0),
        )
        for piece in pieces:
            (grad,) = torch.autograd.grad(piece, x, torch.randn(piece.shape))
            assert grad.shape == x.shape

    checker = check(story)
    expected = ("slice_backward", "select_backward", "diagonal_backward", "unfold_backward")
    assert {f"aten.{name}.default" for name in expected} <= set(checker.checked)


def test_pieces_are_written_into_a_copy() -> None:
    x = torch.zeros(4, 5)

    def story() -> None:
        torch.slice_scatter(x, torch.ones(4, 2), 1, 1, 5, 2)
        torch.slice_scatter(x, torch.ones(2, 5), 0, -2)
        torch.select_scatter(x, torch.ones(5), 0, -1)
        torch.diagonal_scatter(x, torch.ones(4), 1)
        torch.diagonal_scatter(x, torch.ones(3), 1, 1, 0)

    check(story)
