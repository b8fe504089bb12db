"""Decompositions and solvers: LU and what is solved with it, reflectors, least squares, determinants."""

from __future__ import annotations

import pytest
import torch

from .harness import check

DTYPES = [torch.float64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
def test_solutions_from_either_side_and_of_the_adjoint(dtype: torch.dtype) -> None:
    a, left, right = (torch.randn(shape, dtype=dtype) for shape in ((2, 4, 4), (2, 4, 3), (2, 3, 4)))

    def story() -> None:
        lu, pivots = torch.linalg.lu_factor(a)
        for adjoint in (False, True):
            torch.linalg.lu_solve(lu, pivots, left, adjoint=adjoint)
            torch.linalg.lu_solve(lu, pivots, right, left=False, adjoint=adjoint)
        torch.linalg.solve(a, right, left=False)
        torch.linalg.solve(a, left)
        torch.linalg.inv(a)
        torch.lu_unpack(lu, pivots)
        torch.linalg.lu(a[..., :2])
        torch.linalg.lu(a[..., :2, :])

    checker = check(story)
    assert checker.checked["aten.linalg_lu_solve.default"] >= 4
    assert checker.checked["aten.linalg_lu.default"] == 2


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (2, 0, 0)])
def test_matrices_of_nothing(shape: tuple[int, ...]) -> None:
    a = torch.randn(shape)

    def story() -> None:
        lu, pivots = torch.linalg.lu_factor(a)
        torch.lu_unpack(lu, pivots)
        torch.geqrf(a)

    check(story)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 4, 4)])
def test_reflectors_make_and_apply_an_orthogonal_matrix(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = torch.randn(shape, dtype=dtype)
    c = torch.randn((*shape[:-2], shape[-2], 2), dtype=dtype)

    def story() -> None:
        reflectors, tau = torch.geqrf(a)
        if shape[-2] >= shape[-1]:
            torch.linalg.householder_product(reflectors, tau)
            for transpose in (False, True):
                torch.ormqr(reflectors, tau, c, transpose=transpose)
                torch.ormqr(reflectors, tau, c.mT.contiguous(), left=False, transpose=transpose)

    assert check(story).checked["aten.geqrf.default"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matrices_of_no_element_have_a_factor_in_any_dtype(dtype: torch.dtype) -> None:
    for size in ((0, 3, 3), (2, 0, 0)):
        factor = torch.linalg.cholesky(torch.ones(size, dtype=dtype, device="xla"))
        assert (factor.cpu().shape, factor.dtype) == (torch.Size(size), dtype)
