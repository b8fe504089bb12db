"""A real training on the ``xla`` device with a planted mistake: every seventh batch has another size.

``python trained.py LOG`` records into LOG and trains until its standard input ends.
"""

from __future__ import annotations

import sys
import threading

import torch
import torch.nn.functional as F

import xlaprof
import xlaprof.runtime as xr


def train(until: threading.Event) -> None:
    torch.set_num_threads(1)
    device = xr.device()
    model = torch.nn.Linear(16, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    while not until.is_set():
        rows = 8 + step // 7 % 100 if step % 7 == 6 else 8
        with xlaprof.StepTrace("train", step_num=step):
            batch = torch.ones(rows, 16).to(device)  # here the planted shape arrives
            loss = F.mse_loss(model(batch), batch[:, :4])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            xr.sync()
        step += 1


if __name__ == "__main__":
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with xlaprof.record(sys.argv[1]):
        train(stop)
