"""When will the plasma disrupt?  Discrete-time hazards from diagnostics of a (synthetic) tokamak."""
from collections import deque
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

import torch_xla
import torch_xla.core.xla_model as xm


@dataclass
class Config:
    channels: int = 10
    window: int = 48
    bins: int = 16
    batch: int = 24
    steps: int = 160
    lr: float = 2e-3
    smooth: int = 24
    log_every: int = 40


class Shots:
    """Signals of shots; the locked-mode amplitude (channel 0) sets the bin of the disruption."""

    def __init__(self, cfg, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.signal = torch.randn(n, cfg.channels, cfg.window, generator=g).cumsum(2) * 0.2
        growth = torch.rand(n, generator=g)
        self.signal[:, 0] += growth[:, None] * torch.linspace(0, 3, cfg.window)
        rate = 0.06 + 0.35 * growth
        self.bin = torch.empty(n).exponential_(1.0, generator=g).div(rate).long().clamp(max=cfg.bins - 1)
        self.observed = (torch.rand(n, generator=g) < 0.8).float()
        self.gen = g

    def sample(self, k):
        i = torch.randint(0, len(self.bin), (k,), generator=self.gen)
        return self.signal[i], self.bin[i], self.observed[i]


class HazardNet(nn.Module):
    def __init__(self, cfg, width=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(cfg.channels, width, 5, stride=2), nn.SiLU(),
            nn.Conv1d(width, width, 5, stride=2), nn.SiLU())
        self.pool = nn.AdaptiveAvgPool1d(4)
        self.out = nn.Linear(4 * width, cfg.bins)

    def forward(self, x):
        # the average of the last stretches matters most; AdaptiveAvgPool keeps four of them
        h = self.conv(x)
        h = h[..., :8].unflatten(-1, (4, 2)).mean(-1)
        return self.out(h.flatten(1))


def hazard_nll(logits, bins, observed):
    """- log likelihood: survive every earlier bin, then fail in the last one, if that was seen."""
    event = F.one_hot(bins).to(logits.dtype)
    logits = logits[:, :event.shape[1]]
    at_risk = 1.0 - event.cumsum(1)
    survive = -F.softplus(logits) * at_risk
    fail = -F.softplus(-logits) * event * observed[:, None]
    return -(survive + fail).sum(1).mean()


class Smoother:
    """Mean of the last losses, which is what the control room plots."""

    def __init__(self, n):
        self.values = deque(maxlen=n)

    def update(self, value):
        self.values.append(value)
        return torch.stack(tuple(self.values)).mean()


@torch.no_grad()
def concordance(model, shots, device):
    """Share of comparable pairs in which the shot with the higher risk disrupts earlier."""
    risk = torch.sigmoid(model(shots.signal.to(device))).sum(1)
    t = shots.bin.to(device)
    earlier = (t[:, None] < t[None]) & (shots.observed.to(device)[:, None] > 0)
    right = earlier & (risk[:, None] > risk[None])
    return (right.sum() / earlier.sum()).item()


def main():
    cfg = Config()
    torch.manual_seed(0)
    device = torch_xla.device()
    train, held_out = Shots(cfg, 600, 1), Shots(cfg, 128, 2)
    model = HazardNet(cfg).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.steps, eta_min=1e-4)
    smoother = Smoother(cfg.smooth)

    for step in range(1, cfg.steps + 1):
        signal, bins, observed = (t.to(device) for t in train.sample(cfg.batch))
        optimizer.zero_grad(set_to_none=True)
        loss = hazard_nll(model(signal), bins, observed)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        torch_xla.sync()
        level = smoother.update(loss.detach())
        torch_xla.sync()
        if step % cfg.log_every == 0:
            print(f"step {step:4d}  nll {level.item():.4f}  lr {scheduler.get_last_lr()[0]:.2e}", flush=True)

    print(f"concordance {concordance(model, held_out, device):.3f}")


if __name__ == "__main__":
    main()
