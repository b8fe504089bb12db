"""An optimizer whose parameters have made different numbers of steps, and what is advised."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from tests.advice.taken import Case, Program, take

DEVICE = "xla"


def regularised(*, capturable: bool = False, zeros: bool = False) -> Program:
    """A penalty on the gradient in each fourth step, which does not reach the last bias."""

    def program() -> None:
        net = nn.Sequential(nn.Linear(6, 4), nn.Softplus(), nn.Linear(4, 1)).to(DEVICE)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.0, 0.98), capturable=capturable)
        xr.sync()
        for n in range(16):
            x = torch.full((3, 6), 1.0 + n).to(DEVICE)
            optimizer.zero_grad()
            net(x).mean().backward()
            optimizer.step()
            xr.sync()
            if n % 4 == 3:
                optimizer.zero_grad()
                given = x.requires_grad_(True)
                (grad,) = torch.autograd.grad(net(given).sum(), given, create_graph=True)
                grad.square().sum().backward()
                for parameter in net.parameters() if zeros else ():
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                optimizer.step()
                xr.sync()

    return program


CASES = [
    Case("capturable", "recompile", regularised(), "with capturable=True", regularised(capturable=True)),
    Case("zeros", "recompile", regularised(), "have a gradient in every step, of zeros", regularised(zeros=True)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_graph_is_compiled_no_more(case: Case, tmp_path: Path) -> None:
    assert take(case, tmp_path).found.place.code == "optimizer.step()"
