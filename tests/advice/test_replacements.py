"""What is advised in place of an operation computes the same, stays on the device and reads nothing."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

import xlaprof.runtime as xr
from tests.advice.taken import observe
from tests.story import Story
from xlaprof.analysis.evidence.dynamic_size_ops import INSTEAD as INSTEAD_OF_DYNAMIC_SIZES
from xlaprof.analysis.findings.fallback import INSTEAD
from xlaprof.events import Fallback, TransferFromDevice


def histogram(x: Any) -> Any:
    bins = torch.bucketize(x.flatten(), torch.linspace(0, 4, 5).to(x.device)[1:-1], right=True)
    return torch.zeros(4, device=x.device).index_add_(0, bins, torch.ones(bins.shape[0], device=x.device))


def most_frequent(x: Any) -> Any:
    ones = torch.ones(x.numel(), device=x.device)
    return torch.zeros(8, device=x.device).index_add_(0, x.flatten().long(), ones).argmax().float()


def ctc(log_probs: Any, labels: tuple[int, ...] = (1, 2)) -> Any:
    """The loss of one sample, class 0 being the blank."""
    extended = [0, *(label for one in labels for label in (one, 0))]
    never = torch.full((1,), -1e30).to(log_probs.device)
    skips = [i > 1 and label != 0 and label != extended[i - 2] for i, label in enumerate(extended)]
    skip = torch.tensor([0.0 if may else -1e30 for may in skips]).to(log_probs.device)
    alpha = torch.cat([log_probs[0, extended[:2]], never.expand(len(extended) - 2)])
    for frame in log_probs[1:]:
        one_on = torch.cat([never, alpha[:-1]])
        two_on = torch.cat([never, never, alpha[:-2]]) + skip
        alpha = torch.logaddexp(torch.logaddexp(alpha, one_on), two_on) + frame[extended]
    return -torch.logaddexp(alpha[-1], alpha[-2])


def sampled_in_3d(volume: Any, grid: Any) -> Any:
    """``grid_sample`` of a volume (d, h, w) at points (n, 3), with ``align_corners=True`` and within its borders."""
    d, h, w = volume.shape
    at = (grid.flip(-1) + 1) / 2 * torch.tensor([d - 1.0, h - 1.0, w - 1.0]).to(volume.device)
    low = at.floor()
    part, low = at - low, low.long()
    found = torch.zeros(grid.shape[0], device=volume.device)
    for corner in itertools.product((0, 1), repeat=3):
        offset = torch.tensor(corner).to(volume.device)
        z, y, x = torch.minimum(low + offset, torch.tensor([d - 1, h - 1, w - 1]).to(volume.device)).unbind(-1)
        weight = torch.where(offset > 0, part, 1 - part).prod(-1)
        found = found + weight * volume.flatten()[(z * h + y) * w + x]
    return found


def lengthened(x: Any) -> Any:
    return x / x.norm()


ROWS = torch.tensor([[3.0, 1.0, 2.0, 2.0], [1.0, 1.0, 0.0, 2.0], [0.5, 2.0, 1.0, 3.0], [1.5, 3.5, 2.5, 0.0]])
SYMMETRIC = ROWS @ ROWS.T + torch.eye(4)
POINTS = torch.tensor([[0.1, -0.3, 0.7], [-0.9, 0.5, 0.2]])
RAGGED = [torch.ones(2, 3), torch.ones(4, 3) * 2]


class Instead(NamedTuple):
    """Operations of PyTorch that some device runs on the CPU, and what is advised in their place."""

    operations: tuple[str, ...]
    words: str
    was: Callable[[Any], Any]  # on the CPU
    instead: Callable[[Any], Any]  # on the device
    given: Any = ROWS


REPLACED = [
    Instead(
        ("aten::linalg_lstsq",),
        "Solve the normal equations (torch.linalg.solve_ex(A.mT @ A, A.mT @ b))",
        lambda a: torch.linalg.lstsq(a, a[:, :1]).solution,
        lambda a: torch.linalg.solve_ex(a.mT @ a, a.mT @ a[:, :1])[0],
    ),
    Instead(
        ("aten::linalg_lstsq",),
        "or use torch.linalg.qr",
        lambda a: torch.linalg.lstsq(a, a[:, :1]).solution,
        lambda a: torch.linalg.solve_triangular((qr := torch.linalg.qr(a)).R, qr.Q.mT @ a[:, :1], upper=True),
    ),
    Instead(
        ("aten::linalg_ldl_factor_ex",),
        "Use torch.linalg.cholesky_ex if the matrix is positive definite",
        lambda a: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a), a),
        lambda a: torch.cholesky_solve(a, torch.linalg.cholesky_ex(a).L),
        SYMMETRIC,
    ),
    Instead(
        ("aten::linalg_ldl_factor_ex",),
        ", else torch.linalg.lu",
        lambda a: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a), a),
        lambda a: torch.linalg.solve_triangular(
            (lu := torch.linalg.lu(a)).U,
            torch.linalg.solve_triangular(lu.L, lu.P.mT @ a, upper=False, unitriangular=True),
            upper=True,
        ),
        SYMMETRIC,
    ),
    Instead(
        ("aten::histc", "aten::_histogramdd_bin_edges", "aten::_histogramdd_from_bin_cts"),
        "Find the bins with torch.bucketize",
        lambda x: torch.histc(x, 4, 0, 4),
        histogram,
    ),
    Instead(
        ("aten::kthvalue",),
        "Use torch.topk or torch.sort and take the element",
        lambda x: x.kthvalue(2).values,
        lambda x: x.topk(2, largest=False).values[:, 1],
    ),
    Instead(
        ("aten::kthvalue",),
        "torch.sort and take the element",
        lambda x: x.kthvalue(2).values,
        lambda x: x.sort().values[:, 1],
    ),
    Instead(
        ("aten::mode",),
        "Count into a tensor over a known range",
        lambda x: x.flatten().mode().values,
        most_frequent,
        ROWS.round(),
    ),
    Instead(
        ("aten::randperm",),
        "or sort random keys (torch.rand(n).argsort())",
        lambda x: torch.arange(8),
        lambda x: torch.rand(8, device=x.device).argsort().sort().values,
    ),
    Instead(
        ("aten::randperm",),
        "Draw the order on the host with the next batch",
        lambda x: torch.arange(8),
        lambda x: torch.randperm(8).to(x.device).sort().values,
    ),
    Instead(
        ("aten::multinomial",),
        "Draw with the Gumbel trick",
        lambda x: torch.tensor([1, 1]),
        lambda x: (
            torch.tensor([[0.0, 1e4, 0.0], [0.0, 1e4, 0.0]]).to(x.device)
            - (-torch.rand(2, 3, device=x.device).log()).log()
        ).argmax(-1),
    ),
    Instead(
        ("aten::_nested_tensor_from_mask", "aten::_nested_from_padded"),
        "Pad to one length (to_padded_tensor) before the step",
        lambda x: torch.stack([one.sum() for one in RAGGED]),
        lambda x: torch.nested.nested_tensor(RAGGED).to_padded_tensor(0.0).to(x.device).sum((1, 2)),
    ),
    Instead(
        ("aten::_ctc_loss",),
        "Compute the loss in log space with torch.logaddexp",
        lambda x: F.ctc_loss(
            x.log_softmax(-1)[:, None], torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]), reduction="sum"
        ),
        lambda x: ctc(x.log_softmax(-1)),
    ),
    Instead(
        ("aten::grid_sampler_3d",),
        "Gather the neighbours with index tensors",
        lambda p: F.grid_sample(
            torch.arange(27.0).reshape(1, 1, 3, 3, 3), p.reshape(1, 1, 1, 2, 3), align_corners=True
        ).flatten(),
        lambda p: sampled_in_3d(torch.arange(27.0).reshape(3, 3, 3).to(p.device), p),
        POINTS,
    ),
    Instead(
        ("aten::linalg_eig", "aten::linalg_eigvals", "aten::_linalg_eigvals"),
        "or matrix powers if the largest eigenvalue is enough",
        lambda a: torch.linalg.eigvals(a).real.max(),
        lambda a: (v := functools.reduce(lambda v, _: lengthened(a @ v), range(60), a[:, 0])) @ a @ v,
        SYMMETRIC,
    ),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("one", REPLACED, ids=lambda one: one.words)
def test_what_replaces_an_operation_computes_the_same_and_stays_on_the_device(one: Instead, tmp_path: Path) -> None:
    """Some of these operations have a lowering here, and none elsewhere: the finding is planted."""
    for operation in one.operations:
        story = Story()
        for _ in range(8):
            with story.step():
                story.fallback(story.line(5, "y = compute(x)"), operation, 20)
                story.barrier(story.line(6, "xr.sync()"))
        (finding,) = story.findings("fallback")
        assert one.words in finding.advice
    found: list[Any] = []

    def program() -> None:
        given = one.given.to("xla")
        for _ in range(6):
            found[:] = [one.instead(given)]
            xr.sync()

    run = observe(program, tmp_path / "run.log")
    assert run.of(Fallback, TransferFromDevice) == []
    assert torch.allclose(found[0].cpu().float(), one.was(one.given).float(), atol=1e-3)


def test_every_operation_that_has_its_own_advice_is_in_these_tests() -> None:
    applied = {operation for one in REPLACED for operation in one.operations}
    assert set(INSTEAD) - set(INSTEAD_OF_DYNAMIC_SIZES) == applied
