"""State-of-health estimation for lithium-ion cells from charge curves.

Synthetic version of the NASA/CALCE ageing data: every cell gives a sequence of
charge cycles; a small residual MLP on hand-made features predicts remaining capacity.
"""
import math
import time

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(7)
rng = np.random.default_rng(7)

N_CELLS = 24
CYCLES = 90
POINTS = 64


def simulate_cell(idx):
    fade = 0.0008 + 0.0012 * rng.random()
    knee = 50 + 30 * rng.random()
    t = np.linspace(0, 1, POINTS)
    curves, soh = [], []
    for c in range(CYCLES):
        cap = 1.0 - fade * c - 0.004 * max(0.0, c - knee)
        v = 3.0 + 1.1 * (1 - np.exp(-4 * t / cap)) + 0.05 * np.tanh(10 * (t - 0.8 * cap))
        curves.append(v + 0.004 * rng.standard_normal(POINTS))
        soh.append(cap)
    return np.array(curves, np.float32), np.array(soh, np.float32)


class ResidualBlock(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.drop = drop

    def forward(self, x):
        h = torch.nn.functional.gelu(self.up(self.norm(x)))
        h = torch.nn.functional.dropout(h, self.drop, self.training)
        return x + self.down(h)


class SoHNet(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        self.stem = nn.Linear(2 * POINTS - 1, width)
        self.blocks = nn.ModuleList(ResidualBlock(width, 0.2) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, curve):
        dv = curve[:, 1:] - curve[:, :-1]
        x = self.stem(torch.cat([curve - 3.5, 30.0 * dv], dim=1))
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)


class DropoutAnnealer:
    """Lowers the dropout of every block along a cosine, as in the paper (sec. 3.2)."""

    def __init__(self, model, start, total):
        self.blocks = list(model.blocks)
        self.start = start
        self.total = total

    def step(self, epoch):
        value = 0.5 * self.start * (1 + math.cos(math.pi * epoch / self.total))
        for block in self.blocks:
            block.drop = value
        return value


def main():
    cells = [simulate_cell(i) for i in range(N_CELLS)]
    x_train = torch.from_numpy(np.concatenate([c for c, _ in cells[:20]]))
    y_train = torch.from_numpy(np.concatenate([s for _, s in cells[:20]]))
    x_val = torch.from_numpy(np.concatenate([c for c, _ in cells[20:]]))
    y_val = torch.from_numpy(np.concatenate([s for _, s in cells[20:]]))

    torch._dynamo.config.recompile_limit = 64
    net = SoHNet()
    model = torch.compile(net, dynamic=False)
    epochs = 6
    annealer = DropoutAnnealer(net, 0.2, epochs)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
    batch = 120

    for epoch in range(epochs):
        p = annealer.step(epoch)
        t0 = time.time()
        net.train()
        perm = torch.randperm(len(x_train))
        total = torch.zeros(())
        for i in range(0, len(perm), batch):
            idx = perm[i:i + batch]
            loss = nn.functional.smooth_l1_loss(model(x_train[idx]), y_train[idx], beta=0.02)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
        net.eval()
        with torch.no_grad():
            mae = (net(x_val) - y_val).abs().mean().item()
        steps = len(perm) // batch
        print(f"epoch {epoch} drop {p:.3f} loss {total.item() / steps:.5f} "
              f"val MAE {mae:.4f} ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
