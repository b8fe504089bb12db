"""Offline Q-learning with a conservative penalty, from a replay buffer on the host."""
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm


class Replay:
    def __init__(self, size, obs_dim, actions, seed):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.obs = rng.standard_normal((size, obs_dim), dtype=np.float32)
        self.next_obs = self.obs + 0.1 * rng.standard_normal((size, obs_dim), dtype=np.float32)
        self.action = rng.integers(0, actions, size)
        self.reward = rng.standard_normal(size).astype(np.float32)
        self.done = (rng.random(size) < 0.05).astype(np.float32)

    def sample(self, n):
        i = self.rng.integers(0, len(self.reward), n)
        return [torch.from_numpy(a[i]) for a in (self.obs, self.action, self.reward, self.next_obs, self.done)]


class QNet(nn.Module):
    def __init__(self, obs_dim, actions, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.adv = nn.Linear(width, actions)

    def forward(self, x):
        h = self.net(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class TdMonitor:
    """Collects TD errors for the priority report and guards against divergence."""

    def __init__(self, limit):
        self.limit = limit
        self.history = []
        self.alarms = 0

    def observe(self, td):
        self.history.append(td.detach().abs())
        if td.abs().max() > self.limit:
            self.alarms += 1

    def report(self):
        return float(torch.stack(self.history[-10:]).mean())


class Learner:
    def __init__(self, args, device):
        self.q = QNet(args.obs, args.actions).to(device)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=3e-4)
        self.monitor = TdMonitor(args.td_limit)
        self.args = args

    def update(self, obs, action, reward, next_obs, done):
        q = self.q(obs)
        chosen = q.gather(1, action[:, None])[:, 0]
        with torch.no_grad():
            best = self.q(next_obs).argmax(1, keepdim=True)
            backup = reward + 0.99 * (1 - done) * self.target(next_obs).gather(1, best)[:, 0]
        td = chosen - backup
        conservative = (q.logsumexp(1) - chosen).mean()
        loss = F.smooth_l1_loss(chosen, backup) + self.args.alpha * conservative
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for p, t in zip(self.q.parameters(), self.target.parameters()):
                t.lerp_(p, 0.01)
        self.monitor.observe(td)
        return loss


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--obs", type=int, default=12)
    p.add_argument("--actions", type=int, default=5)
    p.add_argument("--batch", type=int, default=4096)
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--alpha", type=float, default=0.5)
    p.add_argument("--td-limit", type=float, default=25.0)
    args = p.parse_args()
    torch.manual_seed(1)
    device = torch_xla.device()
    replay = Replay(20000, args.obs, args.actions, seed=1)
    learner = Learner(args, device)
    for step in range(args.steps):
        batch = [t.to(device) for t in replay.sample(args.batch)]
        loss = learner.update(*batch)
        xm.mark_step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} td {learner.monitor.report():.3f}")
    print("alarms", learner.monitor.alarms)


if __name__ == "__main__":
    main()
