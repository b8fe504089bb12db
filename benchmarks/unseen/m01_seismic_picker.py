# %% [markdown]
# # P/S phase picking on three-component seismograms
# Windows of continuous recordings, a small 1-D U-Net, per-sample class probabilities.

# %%
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

SEED = 17
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
device = torch.device("xla")

TRACE_LEN = 640
WINDOW = 512
N_TRACES = 96
BATCH = 16
EPOCHS = 6


# %% synthetic catalogue
def ricker(n, f):
    t = (np.arange(n) - n // 2) / 100.0
    a = (math.pi * f * t) ** 2
    return (1 - 2 * a) * np.exp(-a)


def make_trace(rng):
    x = rng.normal(0, 0.3, size=(3, TRACE_LEN)).astype(np.float32)
    p = int(rng.integers(150, 300))
    s = p + int(rng.integers(60, 160))
    for onset, amp, freq in ((p, 1.5, 8.0), (s, 2.5, 4.0)):
        w = ricker(80, freq) * amp
        for c in range(3):
            x[c, onset:onset + 80] += w * rng.uniform(0.4, 1.0)
    return x, p, s


rng = np.random.default_rng(SEED)
traces, p_onsets, s_onsets = zip(*(make_trace(rng) for _ in range(N_TRACES)))
waves = torch.from_numpy(np.stack(traces))
p_onsets = torch.tensor(p_onsets)
s_onsets = torch.tensor(s_onsets)


# %% targets: gaussian bumps around the onsets, the rest is noise
def soft_targets(p, s, width=10.0):
    grid = torch.arange(TRACE_LEN).float()
    bp = torch.exp(-((grid - p[:, None].float()) ** 2) / (2 * width ** 2))
    bs = torch.exp(-((grid - s[:, None].float()) ** 2) / (2 * width ** 2))
    noise = (1 - bp - bs).clamp_min(0)
    return torch.stack([bp, bs, noise], 1)


targets = soft_targets(p_onsets, s_onsets)
waves_d = waves.to(device)
targets_d = targets.to(device)
torch_xla.sync()


# %% model
class Down(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv = nn.Conv1d(a, b, 7, stride=2, padding=3)
        self.norm = nn.GroupNorm(4, b)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Up(nn.Module):
    def __init__(self, a, skip, b):
        super().__init__()
        self.conv = nn.Conv1d(a + skip, b, 5, padding=2)

    def forward(self, x, skip):
        x = F.interpolate(x, size=skip.shape[-1], mode="nearest")
        return F.relu(self.conv(torch.cat([x, skip], 1)))


class Picker(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv1d(3, width, 7, padding=3)
        self.down = Down(width, width * 2)
        self.up = Up(width * 2, width, width)
        self.out = nn.Conv1d(width, 3, 1)

    def forward(self, x):
        a = F.relu(self.stem(x))
        return self.out(self.up(self.down(a), a))


net = Picker().to(device)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)


# %% augmentation happens on the device, where the traces already are
def augment(x, y):
    start = random.randrange(0, TRACE_LEN - WINDOW + 1, 16)
    x = x[..., start:start + WINDOW]
    y = y[..., start:start + WINDOW]
    gain = random.uniform(0.5, 2.0)
    x = x * gain + 0.05 * torch.randn_like(x)
    return x / (x.std(dim=-1, keepdim=True) + 1e-5), y


def pick_error(logits, y):
    return (logits[:, :2].argmax(-1) - y[:, :2].argmax(-1)).abs().float().mean()


# %% training
t0 = time.time()
order = np.arange(N_TRACES)
log = []
for epoch in range(EPOCHS):
    np.random.shuffle(order)
    running = torch.zeros((), device=device)
    error = torch.zeros((), device=device)
    for lo in range(0, N_TRACES, BATCH):
        idx = torch.from_numpy(order[lo:lo + BATCH].copy()).to(device)
        x, y = augment(waves_d[idx], targets_d[idx])
        logits = net(x)
        loss = -(y * F.log_softmax(logits, 1)).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.detach()
        error += pick_error(logits.detach(), y)
        torch_xla.sync()
    steps = N_TRACES // BATCH
    log.append((running.item() / steps, error.item() / steps))
    print(f"epoch {epoch}: loss {log[-1][0]:.4f}  pick error {log[-1][1]:.1f} samples  ({time.time() - t0:.1f}s)")

# %%
print("best epoch", min(range(EPOCHS), key=lambda e: log[e][1]))
