"""One training in lazy mode, in eager mode, and compiled: the same losses, and the programs that each runs.

python examples/modes.py
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import xlaprof.runtime as xr

STEPS = 20


def train(run: Callable[[Callable[[], torch.Tensor]], torch.Tensor]) -> list[float]:
    """Losses of ``STEPS`` steps, each of which is called by ``run``."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to("xla")
    x, y = torch.randn(32, 8).to("xla"), torch.randn(32, 1).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    xr.sync()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [run(step) for _ in range(STEPS)]
    return [loss.item() for loss in losses]


def lazily(step: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Record the step; the barrier runs it."""
    loss = step()
    xr.sync()
    return loss


def at_once(step: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Every operation runs when it is called."""
    return step()


def compiled(step: Callable[[], torch.Tensor]) -> torch.Tensor:
    """One graph, run where the step returns. (Keep the compiled function where you have one.)"""
    return xr.compile(step, full_graph=True)()


def main() -> None:
    losses = []
    for name, run, eager in (("lazy", lazily, False), ("eager", at_once, True), ("compile", compiled, True)):
        with xr.eager_mode_context(eager):
            before, _ = xr.metrics.totals()
            losses.append(train(run))
            after, _ = xr.metrics.totals()
        graphs, compiles, alone = (
            after.get(metric, 0) - before.get(metric, 0)
            for metric in ("ExecuteTime", "CompileTime", "EagerOpExecuteTime")
        )
        print(
            f"{name}: {graphs} graphs run, {compiles} compiled, {alone} operations run alone; loss {losses[-1][-1]:.4f}"
        )
    for others in losses[1:]:
        torch.testing.assert_close(torch.tensor(others), torch.tensor(losses[0]), rtol=1e-4, atol=1e-5)
    print("the same losses in all three")


if __name__ == "__main__":
    main()
