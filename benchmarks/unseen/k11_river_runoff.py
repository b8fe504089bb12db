"""Runoff of a river from rain: a bucket model whose parameters a small net supplies; the whole update is compiled."""
import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DAYS = 20
QUANTILES = (0.1, 0.5, 0.9)


def simulate(count, seed):
    """Rain in, catchment attributes, and the runoff of two linear reservoirs with noise."""
    g = torch.Generator().manual_seed(seed)
    wet = (torch.rand(count, DAYS, generator=g) < 0.4).float()
    rain = wet * torch.rand(count, DAYS, generator=g) * 10
    attributes = torch.rand(count, 5, generator=g)
    fast = 0.3 + 0.5 * attributes[:, 0]
    slow = 0.02 + 0.1 * attributes[:, 1]
    share = 0.2 + 0.6 * attributes[:, 2]
    a = torch.zeros(count)
    b = torch.zeros(count)
    flow = []
    for day in range(DAYS):
        a = a + share * rain[:, day]
        b = b + (1 - share) * rain[:, day]
        out = fast * a + slow * b
        a, b = a * (1 - fast), b * (1 - slow)
        flow.append(out)
    runoff = torch.stack(flow, 1)
    runoff = runoff * (1 + 0.05 * torch.randn(runoff.shape, generator=g))
    return rain, attributes, runoff


class BucketNet(nn.Module):
    """Attributes give the reservoirs' constants; the residual net adds what reservoirs cannot say."""

    def __init__(self, width=32):
        super().__init__()
        self.constants = nn.Sequential(nn.Linear(5, width), nn.SiLU(), nn.Linear(width, 3), nn.Sigmoid())
        self.spread = nn.Sequential(nn.Linear(2 + 5, width), nn.SiLU(), nn.Linear(width, len(QUANTILES)))

    def forward(self, rain, attributes):
        fast, slow, share = self.constants(attributes).unbind(-1)
        a = torch.zeros_like(fast)
        b = torch.zeros_like(fast)
        flow = []
        for day in range(DAYS):
            a = a + share * rain[:, day]
            b = b + (1 - share) * rain[:, day]
            flow.append(fast * a + slow * b)
            a, b = a * (1 - fast), b * (1 - slow)
        base = torch.stack(flow, 1)
        extra = attributes[:, None].expand(-1, DAYS, -1)
        features = torch.cat([rain[..., None] / 10, base[..., None] / 10, extra], dim=-1)
        return base[..., None] * (1 + self.spread(features) * 0.1)


def pinball(prediction, target):
    taus = torch.tensor(QUANTILES)
    error = target[..., None] - prediction
    return torch.maximum(taus * error, (taus - 1) * error).mean()


class Updater:
    """Loss, backward pass and optimizer; the optimizer's step is compiled as PyTorch's tutorial does."""

    def __init__(self, net, steps, warmup=15):
        self.net = torch.compile(net, backend="aot_eager")
        self.optimizer = torch.optim.Adam(net.parameters(), lr=4e-3, weight_decay=1e-5)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda k: min((k + 1) / warmup, max(0.02, 1 - k / steps)))
        self.apply = torch.compile(self._apply, backend="aot_eager")

    def _apply(self):
        self.optimizer.step()

    def __call__(self, rain, attributes, runoff):
        loss = pinball(self.net(rain, attributes), runoff)
        loss.backward()
        self.apply()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss.detach()


class Smoother:
    def __init__(self, size):
        self.values = deque(maxlen=size)

    def add(self, value):
        self.values.append(value)

    def mean(self):
        return torch.stack(tuple(self.values)).mean().item()


@torch.no_grad()
def coverage(net, data):
    rain, attributes, runoff = data
    low, _, high = net(rain, attributes).unbind(-1)
    return ((runoff >= low) & (runoff <= high)).float().mean().item()


def main():
    torch.manual_seed(17)
    train = TensorDataset(*simulate(4096, 1))
    held_out = simulate(512, 2)
    loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    epochs = 4
    net = BucketNet()
    update = Updater(net, steps=epochs * len(loader))
    recent = Smoother(40)
    for epoch in range(epochs):
        began = time.perf_counter()
        for rain, attributes, runoff in loader:
            recent.add(update(rain, attributes, runoff))
        lr = update.schedule.get_last_lr()[0]
        print(
            f"epoch {epoch}: pinball {recent.mean():.4f}  coverage {coverage(net, held_out):.3f}  lr {lr:.1e}  "
            f"{time.perf_counter() - began:.2f} s")
    with torch.no_grad():
        rain, attributes, runoff = held_out
        median = net(rain, attributes)[..., 1]
        nse = 1 - ((median - runoff) ** 2).sum() / ((runoff - runoff.mean()) ** 2).sum()
    print(f"Nash-Sutcliffe efficiency {nse.item():.3f}")


if __name__ == "__main__":
    main()
