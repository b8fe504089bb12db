"""Neural cellular automaton that grows a tissue pattern from a single seed cell."""
import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm


def make_target(size):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    yy, xx = yy - size / 2, xx - size / 2
    radius, angle = np.hypot(yy, xx), np.arctan2(yy, xx)
    petal = (radius < size * (0.28 + 0.1 * np.cos(5 * angle))).astype(np.float32)
    core = (radius < size * 0.1).astype(np.float32)
    rgba = np.stack([petal, core, petal * 0.4 + core * 0.3, petal], 0)
    return torch.from_numpy(rgba)


class Perception(nn.Module):
    def __init__(self, channels):
        super().__init__()
        sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8.0
        identity = torch.zeros(3, 3)
        identity[1, 1] = 1.0
        kernel = torch.stack([identity, sobel, sobel.t()])[:, None]
        self.register_buffer("kernel", kernel.repeat(channels, 1, 1, 1))
        self.channels = channels

    def forward(self, x):
        return F.conv2d(x, self.kernel, padding=1, groups=self.channels)


class Automaton(nn.Module):
    def __init__(self, channels=10, hidden=32, fire_rate=0.5):
        super().__init__()
        self.perceive = Perception(channels)
        self.rule = nn.Sequential(nn.Conv2d(channels * 3, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, channels, 1, bias=False))
        nn.init.zeros_(self.rule[-1].weight)
        self.fire_rate = fire_rate

    @staticmethod
    def alive(x):
        return F.max_pool2d(x[:, 3:4], 3, stride=1, padding=1) > 0.1

    def forward(self, x):
        before = self.alive(x)
        fire = (torch.rand_like(x[:, :1]) <= self.fire_rate).to(x.dtype)
        x = x + self.rule(self.perceive(x)) * fire
        return x * (before & self.alive(x)).to(x.dtype)


class SeedPool:
    """Persistent pool of grown states, as in the Growing-NCA recipe."""

    def __init__(self, n, channels, size):
        seed = torch.zeros(channels, size, size)
        seed[3:, size // 2, size // 2] = 1.0
        self.seed = seed
        self.states = seed.repeat(n, 1, 1, 1)
        self.rng = np.random.default_rng(3)

    def sample(self, k):
        index = torch.from_numpy(self.rng.choice(len(self.states), k, replace=False))
        batch = self.states[index].clone()
        batch[0] = self.seed
        return index, batch

    def commit(self, index, states):
        self.states[index] = states


def state_loss(x, target):
    return (x[:, :4] - target).square().mean((1, 2, 3))


def rollout(model, x, low, high):
    for _ in range(random.randint(low, high)):
        x = model(x)
    return x


def evaluate(model, pool, target, device, steps=8):
    model.eval()
    with torch.no_grad():
        x = pool.seed[None].to(device)
        for _ in range(steps):
            x = model(x)
            torch_xla.sync()
        value = state_loss(x, target).mean()
    model.train()
    return value.item()


def train(args, device):
    target = make_target(args.size).to(device)
    pool = SeedPool(64, args.channels, args.size)
    model = Automaton(args.channels).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [args.iterations // 2], 0.3)
    started = time.time()
    for it in range(1, args.iterations + 1):
        index, start = pool.sample(args.batch)
        x = rollout(model, start.to(device), args.min_steps, args.max_steps)
        per_state = state_loss(x, target)
        loss = per_state.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.grad.div_(p.grad.norm() + 1e-8)
        optimizer.step()
        schedule.step()
        torch_xla.sync()
        pool.commit(index, x.detach().cpu())
        if it % 30 == 0:
            print(f"iter {it:4d}  loss {loss.item():.4f}  {it / (time.time() - started):.1f} it/s", flush=True)
        if it % 45 == 0:
            print(f"   from the seed: {evaluate(model, pool, target, device):.4f}", flush=True)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--channels", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=90)
    parser.add_argument("--min-steps", type=int, default=4)
    parser.add_argument("--max-steps", type=int, default=7)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    train(args, xm.xla_device())


if __name__ == "__main__":
    main()
