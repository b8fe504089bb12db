"""Semi-supervised arrhythmia detection on single-lead ECG (MixMatch with few labels)."""
import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

CLASSES = ("normal", "atrial", "ventricular", "paced")


@dataclass
class Settings:
    samples: int = 96
    labelled: int = 48
    unlabelled: int = 512
    batch: int = 12
    steps: int = 36
    sharpen_from: float = 1.0
    sharpen_to: float = 0.4
    unlabelled_weight: float = 5.0
    ema: float = 0.99
    lr: float = 2e-3
    schedule: list = field(default_factory=lambda: [24])


def beats(n, samples, seed):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, samples)
    kind = rng.integers(0, len(CLASSES), n)
    width = np.array([0.02, 0.02, 0.06, 0.04])[kind, None]
    p_wave = np.array([0.2, 0.0, 0.05, 0.0])[kind, None]
    shift = rng.normal(0, 0.02, (n, 1))
    x = np.exp(-((t - 0.5 - shift) / width) ** 2) + p_wave * np.exp(-((t - 0.3 - shift) / 0.04) ** 2)
    x = x + 0.25 * np.sin(2 * math.pi * (t + rng.random((n, 1)))) * rng.random((n, 1)) + 0.05 * rng.normal(size=x.shape)
    return torch.from_numpy(x.astype(np.float32))[:, None], torch.from_numpy(kind)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(c_in, c_out, 7, stride=2, padding=3), nn.GroupNorm(4, c_out), nn.SiLU(),
                                  nn.Conv1d(c_out, c_out, 5, padding=2), nn.GroupNorm(4, c_out))
        self.skip = nn.Conv1d(c_in, c_out, 1, stride=2)

    def forward(self, x):
        return F.silu(self.body(x) + self.skip(x))


class BeatNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.blocks = nn.Sequential(ResBlock(1, width), ResBlock(width, 2 * width))
        self.head = nn.Linear(2 * width, len(CLASSES))

    def forward(self, x):
        return self.head(self.blocks(x).mean(-1))


def augment(x):
    scale = 0.8 + 0.4 * torch.rand(len(x), 1, 1, device=x.device)
    drift = torch.randn(len(x), 1, 1, device=x.device) * torch.linspace(-0.3, 0.3, x.shape[-1], device=x.device)
    return x * scale + drift + 0.02 * torch.randn_like(x)


def sharpen(p, temperature):
    p = p ** (1.0 / temperature)
    return p / p.sum(-1, keepdim=True)


class Shadow:
    """Averaged weights for the evaluation."""

    def __init__(self, model, decay):
        self.decay = decay
        self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.weights[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


class MixMatch:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg

    def temperature(self, step):
        progress = step / self.cfg.steps
        return self.cfg.sharpen_to + (self.cfg.sharpen_from - self.cfg.sharpen_to) * 0.5 * (1 + math.cos(math.pi * progress))

    def loss(self, x, y, u, step):
        with torch.no_grad():
            guess = (self.model(augment(u)).softmax(-1) + self.model(augment(u)).softmax(-1)) / 2
            guess = sharpen(guess, self.temperature(step))
        inputs = torch.cat([augment(x), augment(u)])
        targets = torch.cat([F.one_hot(y, len(CLASSES)).float(), guess])
        order = torch.randperm(len(inputs)).to(inputs.device)
        lam = float(np.clip(np.random.beta(0.75, 0.75), 0.02, 0.98))
        lam = max(lam, 1 - lam)
        mixed = lam * inputs + (1 - lam) * inputs[order]
        mixed_targets = lam * targets + (1 - lam) * targets[order]
        logits = self.model(mixed)
        n = len(x)
        supervised = -(mixed_targets[:n] * logits[:n].log_softmax(-1)).sum(-1).mean()
        consistency = F.mse_loss(logits[n:].softmax(-1), mixed_targets[n:])
        weight = self.cfg.unlabelled_weight * (step + 0.5) / self.cfg.steps
        return supervised + weight * consistency


def main():
    cfg = Settings()
    torch.manual_seed(0)
    np.random.seed(0)
    device = xm.xla_device()
    x, y = beats(cfg.labelled, cfg.samples, 0)
    u, _ = beats(cfg.unlabelled, cfg.samples, 1)
    x_test, y_test = beats(400, cfg.samples, 2)
    model = BeatNet().to(device)
    shadow, method = Shadow(model, cfg.ema), MixMatch(model, cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, cfg.schedule, 0.2)
    started = time.time()
    for step in range(cfg.steps):
        i, j = torch.randint(0, len(x), (cfg.batch,)), torch.randint(0, len(u), (cfg.batch,))
        loss = method.loss(x[i].to(device), y[i].to(device), u[j].to(device), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        shadow.update(model)
        torch_xla.sync()
        if step % 18 == 17:
            print(f"{step + 1} loss {loss.item():.3f} ({time.time() - started:.1f} s)", flush=True)
    model.load_state_dict(shadow.weights)
    with torch.no_grad():
        accuracy = (model(x_test.to(device)).argmax(-1) == y_test.to(device)).float().mean()
    print(f"accuracy of the averaged weights {accuracy.item():.3f}")


if __name__ == "__main__":
    main()
