"""REINFORCE for the dispatching of two elevators in a ten-storey building.

A vectorised toy building: passengers appear at random floors, each car moves
up, down or stays. The policy network is compiled; rewards are waiting people.
"""
import time

import numpy as np
import torch
import torch.nn as nn

FLOORS, CARS, HORIZON, BUILDINGS = 10, 2, 160, 16
MOVES = np.array([-1, 0, 1])


class Building:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.reset()

    def reset(self):
        self.waiting = self.rng.poisson(0.4, (self.n, FLOORS)).astype(np.float32)
        self.pos = self.rng.integers(0, FLOORS, (self.n, CARS))
        self.clock = 0
        return self.observe()

    def observe(self):
        where = np.eye(FLOORS, dtype=np.float32)[self.pos].reshape(self.n, -1)
        phase = np.full((self.n, 1), self.clock / HORIZON, np.float32)
        return np.concatenate([self.waiting / 5, where, phase], 1)

    def step(self, action):
        self.pos = np.clip(self.pos + MOVES[action], 0, FLOORS - 1)
        rows = np.arange(self.n)
        for car in range(CARS):
            still = action[:, car] == 1
            floor = self.pos[:, car]
            served = np.where(still, np.minimum(self.waiting[rows, floor], 6), 0)
            self.waiting[rows, floor] -= served
        rush = 0.25 if self.clock < HORIZON // 3 else 0.05
        lam = np.full(FLOORS, 0.06)
        lam[0] = rush
        self.waiting += self.rng.poisson(lam, (self.n, FLOORS))
        self.clock += 1
        return self.observe(), -self.waiting.sum(1) / FLOORS


class Dispatcher(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FLOORS * (CARS + 1) + 1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, CARS * 3)
        self.critic = nn.Linear(width, 1)

    def forward(self, obs):
        z = self.body(obs)
        return self.actor(z).view(-1, CARS, 3).log_softmax(-1), self.critic(z).squeeze(-1)


class Rollout:
    """Collects one episode of all buildings and turns it into training targets."""

    def __init__(self, gamma=0.97, lam=0.95):
        self.gamma, self.lam = gamma, lam
        self.clear()

    def clear(self):
        self.obs, self.act, self.rew, self.val = [], [], [], []

    def add(self, obs, act, rew, val):
        self.obs.append(obs)
        self.act.append(act)
        self.rew.append(torch.as_tensor(rew, dtype=torch.float32))
        self.val.append(val)

    def advantage_at(self, t):
        total, weight = torch.zeros(BUILDINGS), 1.0
        for k in range(t, len(self.rew)):
            after = self.val[k + 1] if k + 1 < len(self.val) else 0.0
            delta = self.rew[k] + self.gamma * after - self.val[k]
            total = total + weight * delta
            weight *= self.gamma * self.lam
        return total

    def targets(self):
        adv = torch.stack([self.advantage_at(t) for t in range(len(self.rew))])
        ret = adv + torch.stack(self.val)
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        return torch.stack(self.obs).flatten(0, 1), torch.stack(self.act).flatten(0, 1), adv.flatten(), ret.flatten()


def main():
    torch.manual_seed(0)
    env = Building(BUILDINGS, np.random.default_rng(0))
    policy = Dispatcher()
    fast = torch.compile(policy, backend="eager", dynamic=False)
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    rollout = Rollout()
    began = time.time()
    for episode in range(80):
        obs = torch.from_numpy(env.reset())
        rollout.clear()
        for _ in range(HORIZON):
            with torch.no_grad():
                logp, value = fast(obs)
                action = torch.distributions.Categorical(logits=logp).sample()
            after, reward = env.step(action.numpy())
            rollout.add(obs, action, reward, value)
            obs = torch.from_numpy(after)
        all_obs, all_act, adv, ret = rollout.targets()
        for _ in range(3):
            logp, value = fast(all_obs)
            chosen = logp.gather(-1, all_act.unsqueeze(-1)).squeeze(-1).sum(-1)
            entropy = -(logp.exp() * logp).sum(-1).mean()
            loss = -(chosen * adv).mean() + 0.02 * (value - ret).square().mean() - 0.01 * entropy
            opt.zero_grad()
            loss.backward()
            opt.step()
        if episode % 10 == 9:
            mean = torch.stack(rollout.rew).mean().item()
            print(f"episode {episode + 1} reward {mean:.3f} loss {loss.item():.3f} ({time.time() - began:.0f}s)", flush=True)


if __name__ == "__main__":
    main()
