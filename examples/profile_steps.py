"""Steps and scopes of PyTorch/XLA's profiler, in a profile that TensorBoard opens.

    python examples/profile_steps.py /tmp/profile
    tensorboard --logdir /tmp/profile        # with xprof installed

XProf shows each step, the scopes on the host's timeline, and the operations on the device with the names of their
scopes and the line that recorded them.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import xlaprof.runtime as xr
import xlaprof.runtime.profiler as xp


def main(folder: str, steps: int = 5) -> None:
    torch.manual_seed(0)
    device = torch.device("xla")
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 1)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(32, 64).to(device), torch.randn(32, 1).to(device)

    def step() -> None:
        with xp.Trace("forward"):
            loss = nn.functional.mse_loss(model(x), y)
        with xp.Trace("backward"):
            opt.zero_grad()
            loss.backward()
        with xp.Trace("optimizer", lr=0.05):
            opt.step()

    for _ in range(2):  # compiled before the profile begins
        step()
        xr.sync()
    xp.start_trace(folder)
    for number in range(steps):
        with xp.StepTrace("train", step_num=number):  # the barrier is at its end
            step()
    xr.wait_device_ops()
    xp.stop_trace()


if __name__ == "__main__":
    main(*sys.argv[1:2])
