# Growing coral: a neural cellular automaton that learns to grow a target shape from one polyp
# (after Mordvintsev et al., "Growing Neural Cellular Automata").
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

SIZE, CHANNELS, HIDDEN = 16, 8, 16
POOL, BATCH = 32, 4
STEPS = 160
GROWTH = (3, 6)


def coral_target(size):
    """RGBA of a branching coral."""
    canvas = torch.zeros(size, size, 4)

    def branch(y, x, dy, dx, length):
        for _ in range(length):
            yy, xx = int(round(y)), int(round(x))
            if not (1 <= yy < size - 1 and 1 <= xx < size - 1):
                return
            canvas[yy - 1:yy + 1, xx - 1:xx + 1] = torch.tensor([0.9, 0.4, 0.3, 1.0])
            y, x = y + dy, x + dx
        if length > 2:
            branch(y, x, dy, dx - 0.6, length // 2)
            branch(y, x, dy, dx + 0.6, length // 2)

    branch(size - 2, size / 2, -1, 0, 6)
    return canvas


def polyp(n):
    x = torch.zeros(n, SIZE, SIZE, CHANNELS)
    x[:, SIZE - 3, SIZE // 2, 3:] = 1.0
    return x


class Automaton(nn.Module):
    def __init__(self):
        super().__init__()
        self.rule = nn.Linear(3 * CHANNELS, HIDDEN)
        self.update = nn.Linear(HIDDEN, CHANNELS, bias=False)
        nn.init.zeros_(self.update.weight)

    def perceive(self, x):
        """Every cell sees itself and the slopes of its neighbourhood (the sea is a torus)."""
        dy = torch.roll(x, 1, 1) - torch.roll(x, -1, 1)
        dx = torch.roll(x, 1, 2) - torch.roll(x, -1, 2)
        return torch.cat([x, dy / 2, dx / 2], -1)

    def step(self, x):
        dx = self.update(F.relu(self.rule(self.perceive(x))))
        fire = (torch.rand_like(x[..., :1]) < 0.5).float()
        return (x + dx * fire).clamp(-2, 2)

    def forward(self, x, n):
        for _ in range(n):
            x = self.step(x)
        return x


class Pool:
    """States that keep growing between visits; the worst of a batch starts again from the polyp."""

    def __init__(self, n, device):
        self.states = polyp(n).to(device)
        self.seed = polyp(1)[0].to(device)

    def draw(self, k):
        idx = torch.randperm(len(self.states))[:k].to(self.states.device)
        return idx, self.states[idx]

    def put(self, idx, states, losses):
        states = states.detach()
        worst = losses.argmax().item()
        states[worst] = self.seed
        self.states[idx] = states


def per_sample_loss(x, target):
    return (x[..., :4] - target).pow(2).mean((1, 2, 3))


def main():
    random.seed(3)
    torch.manual_seed(3)
    device = torch_xla.device()
    target = coral_target(SIZE).to(device)
    net = Automaton().to(device)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    pool = Pool(POOL, device)
    torch_xla.sync()

    running = torch.zeros((), device=device)
    for it in range(STEPS):
        idx, x = pool.draw(BATCH)
        x = net(x, random.randint(*GROWTH))
        losses = per_sample_loss(x, target)
        loss = losses.mean()
        opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p.grad.div_(p.grad.norm() + 1e-8)
        opt.step()
        running.mul_(0.95).add_(loss.detach(), alpha=0.05)
        torch_xla.sync()
        pool.put(idx, x, losses.detach())
        torch_xla.sync()
        if (it + 1) % 40 == 0:
            print(f"{it + 1:4d}  running loss {running.item():.4f}")

    with torch.no_grad():
        grown = net(polyp(1).to(device), GROWTH[1])
        print("final", per_sample_loss(grown, target).mean().item())


if __name__ == "__main__":
    main()
