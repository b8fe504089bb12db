"""reduce-overhead: CUDA graphs that are recorded and replayed while the device is watched; the results are checked."""

import torch
from measured import measured, python
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8))).cuda()
step = torch.compile(model, mode="reduce-overhead")


def run(turns, truth=None):
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    for turn in range(turns):
        x = torch.full((2048, 1024), turn / turns, device="cuda")
        for _ in range(10):
            x = step(x).clone()
        total += x.double().sum()
        python(8)  # <-- the stall
    return total


with torch.no_grad():
    run(6)
    with measured() as truth:
        got = run(60, truth)
    want = torch.zeros((), device="cuda", dtype=torch.float64)
    for turn in range(60):
        x = torch.full((2048, 1024), turn / 60, device="cuda")
        for _ in range(10):
            x = model(x)
        want += x.double().sum()
    print("off by", abs((got - want) / want).item())
    torch.testing.assert_close(got, want, rtol=1e-3, atol=0)
