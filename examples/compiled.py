"""One training in lazy mode and with torch.compile: the same losses, and the executions of each per step.

python examples/compiled.py
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import xlaprof.runtime as xr

STEPS = 10


def train(backend: str | None) -> tuple[list[float], int]:
    """Losses of ``STEPS`` steps, and the executions of the last."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)).to("xla")
    x, y = torch.randn(32, 8).to("xla"), torch.randn(32, 1).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    xr.sync()

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(model(x), y)

    forward: Callable[..., torch.Tensor] = loss_of if backend is None else torch.compile(loss_of, backend=backend)
    losses, executions = [], 0
    for _ in range(STEPS):
        before = executed()
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        xr.sync()
        executions = executed() - before
        losses.append(loss.detach())
    return [loss.item() for loss in losses], executions


def executed() -> int:
    """Executions up to now."""
    data = xr.metrics.metric_data("ExecuteTime")
    return 0 if data is None else data[0]


def main() -> None:
    lazy, one = train(None)
    compiled, three = train("openxla")
    torch.testing.assert_close(torch.tensor(compiled), torch.tensor(lazy), rtol=1e-4, atol=1e-5)
    print(f"loss {lazy[0]:.3f} -> {lazy[-1]:.3f} both ways; executions per step: lazy {one}, openxla {three}")


if __name__ == "__main__":
    main()
