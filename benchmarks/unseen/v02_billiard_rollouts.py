"""A graph-free interaction network for billiard balls: learns one step, is judged on rollouts.

Positions and velocities are in table widths. Collisions come from a small event-free simulator with soft contacts.
"""
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch_xla


@dataclass
class Config:
    balls: int = 5
    batch: int = 32
    games: int = 200
    frames: int = 12
    epochs: int = 3
    hidden: int = 32
    horizon: int = 8
    lr: float = 1e-3


def simulate(cfg, n, rng):
    pos = rng.uniform(0.1, 0.9, (n, cfg.balls, 2))
    vel = rng.normal(0, 0.04, (n, cfg.balls, 2))
    states = []
    for _ in range(cfg.frames):
        states.append(np.concatenate([pos, vel], -1))
        gap = pos[:, :, None] - pos[:, None]
        dist = np.linalg.norm(gap, axis=-1, keepdims=True) + 1e-6
        push = np.where(dist < 0.12, (0.12 - dist) * gap / dist, 0.0).sum(2)
        vel = 0.99 * vel + 0.4 * push
        pos = pos + vel
        vel = np.where((pos < 0) | (pos > 1), -vel, vel)
        pos = pos.clip(0, 1)
    return torch.tensor(np.stack(states, 1), dtype=torch.float32)  # game, frame, ball, 4


class Interactions(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(8, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.update = nn.Sequential(nn.Linear(hidden + 4, hidden), nn.SiLU(), nn.Linear(hidden, 4))

    def forward(self, state):
        n = state.shape[1]
        a = state.unsqueeze(2).expand(-1, -1, n, -1)
        b = state.unsqueeze(1).expand(-1, n, -1, -1)
        effect = self.pair(torch.cat([a, b - a], -1)).sum(2)
        return state + 0.1 * self.update(torch.cat([state, effect], -1))


class ActivationProbe:
    """Mean activity of every SiLU, for the table at the end of the epoch."""

    def __init__(self):
        self.activity = defaultdict(list)

    def attach(self, model):
        for name, module in model.named_modules():
            if isinstance(module, nn.SiLU):
                module.register_forward_hook(self._hook(name))

    def _hook(self, name):
        def record(module, inputs, output):
            self.activity[name] = 0.9 * self.activity[name] + 0.1 * output.detach().abs().mean() if isinstance(
                self.activity[name], torch.Tensor) else output.detach().abs().mean()
        return record

    def table(self):
        return "  ".join(f"{name}={float(value):.3f}" for name, value in self.activity.items())


def batches(games, size, generator):
    now = games[:, :-1].reshape(-1, *games.shape[2:])
    after = games[:, 1:].reshape(-1, *games.shape[2:])
    order = torch.randperm(len(now), generator=generator)
    for start in range(0, len(order) - size + 1, size):
        pick = order[start : start + size]
        yield now[pick], after[pick]


def rollout_error(model, games, cfg, device):
    """Mean distance of the balls from where they should be after `horizon` steps."""
    model.eval()
    distances = []
    with torch.no_grad():
        for start in range(0, len(games), 8):
            chunk = games[start : start + 8]
            state = chunk[:, 0].to(device)
            for _ in range(cfg.horizon):
                state = model(state)
            truth = chunk[:, cfg.horizon].to(device)
            distances.append((state[..., :2] - truth[..., :2]).norm(dim=-1).mean())
    return torch.stack(distances).mean().item()


def fit(cfg):
    rng = np.random.default_rng(11)
    generator = torch.Generator().manual_seed(11)
    train, test = simulate(cfg, cfg.games, rng), simulate(cfg, 64, rng)
    device = torch_xla.device()
    model = Interactions(cfg.hidden).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)
    for epoch in range(cfg.epochs):
        probe = ActivationProbe()
        probe.attach(model)
        model.train()
        losses = torch.zeros(2, device=device)
        count = 0
        for now, after in batches(train, cfg.batch, generator):
            now, after = now.to(device), after.to(device)
            noisy = now + 0.003 * torch.randn_like(now)
            predicted = model(noisy)
            where = nn.functional.mse_loss(predicted[..., :2], after[..., :2])
            speed = nn.functional.mse_loss(predicted[..., 2:], after[..., 2:])
            loss = where + 4.0 * speed
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += torch.stack([where.detach(), speed.detach()])
            count += 1
            torch_xla.sync()
        schedule.step()
        position, velocity = (losses / count).tolist()
        print(f"epoch {epoch}: position {position:.5f} velocity {velocity:.5f}  {probe.table()}")
        print(f"   rollout error {rollout_error(model, test, cfg, device):.4f}")
    return model


def main():
    torch.manual_seed(0)
    fit(Config())


if __name__ == "__main__":
    main()
