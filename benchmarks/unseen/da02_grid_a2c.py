"""Advantage actor critic on a batch of small grid worlds; networks on an XLA device, worlds on the host."""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm


@dataclass
class Config:
    envs: int = 12
    size: int = 7
    horizon: int = 16
    updates: int = 40
    gamma: float = 0.97
    entropy: float = 0.01
    lr: float = 3e-3
    seed: int = 11


class GridWorlds:
    """Walk to the flag; every step costs 0.02, reaching pays 1."""

    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, n, size, seed):
        self.n, self.size = n, size
        self.rng = np.random.default_rng(seed)
        self.agent = self.rng.integers(size, size=(n, 2))
        self.flag = self.rng.integers(size, size=(n, 2))

    def observe(self):
        obs = np.zeros((self.n, 2, self.size, self.size), np.float32)
        rows = np.arange(self.n)
        obs[rows, 0, self.agent[:, 0], self.agent[:, 1]] = 1.0
        obs[rows, 1, self.flag[:, 0], self.flag[:, 1]] = 1.0
        return torch.from_numpy(obs.reshape(self.n, -1))

    def step(self, actions):
        self.agent = np.clip(self.agent + self.MOVES[actions], 0, self.size - 1)
        done = (self.agent == self.flag).all(1)
        reward = np.where(done, 1.0, -0.02).astype(np.float32)
        for i in np.flatnonzero(done):
            self.agent[i] = self.rng.integers(self.size, size=2)
            self.flag[i] = self.rng.integers(self.size, size=2)
        return torch.from_numpy(reward), torch.from_numpy(done.astype(np.float32))


class ActorCritic(nn.Module):
    def __init__(self, inputs, actions=4, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.policy = nn.Linear(hidden, actions)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.policy(h), self.value(h).squeeze(-1)


@torch.no_grad()
def act(net, obs, device):
    logits, _ = net(obs.to(device))
    gumbel = -torch.log(-torch.log(torch.rand(logits.shape, device=device).clamp(1e-6, 1 - 1e-6)))
    choice = (logits + gumbel).argmax(-1)
    return np.array([int(choice[i]) for i in range(len(obs))])


def rollout(net, worlds, cfg, device):
    keep = {"obs": [], "act": [], "rew": [], "done": []}
    for _ in range(cfg.horizon):
        obs = worlds.observe()
        actions = act(net, obs, device)
        reward, done = worlds.step(actions)
        for k, v in zip(keep, (obs, torch.from_numpy(actions), reward, done)):
            keep[k].append(v)
    last = worlds.observe()
    with torch.no_grad():
        bootstrap = net(last.to(device))[1].cpu()
    returns = torch.zeros(cfg.horizon, cfg.envs)
    running = bootstrap
    for t in reversed(range(cfg.horizon)):
        running = keep["rew"][t] + cfg.gamma * running * (1 - keep["done"][t])
        returns[t] = running
    obs = torch.cat(keep["obs"]).to(device)
    actions = torch.cat(keep["act"]).long().to(device)
    return obs, actions, returns.flatten().to(device), torch.stack(keep["rew"]).sum() / cfg.envs


def learn(net, optimizer, obs, actions, returns, cfg):
    logits, values = net(obs)
    logp = F.log_softmax(logits, -1)
    advantage = (returns - values).detach()
    chosen = logp.gather(1, actions[:, None]).squeeze(1)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(values, returns) - cfg.entropy * entropy
    optimizer.zero_grad()
    loss.backward()
    xm.optimizer_step(optimizer)
    xm.mark_step()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    device = xm.xla_device()
    worlds = GridWorlds(cfg.envs, cfg.size, cfg.seed)
    net = ActorCritic(2 * cfg.size ** 2).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    score = []
    for update in range(cfg.updates):
        obs, actions, returns, gained = rollout(net, worlds, cfg, device)
        learn(net, optimizer, obs, actions, returns, cfg)
        score.append(float(gained))
        if (update + 1) % 10 == 0:
            print(f"update {update + 1}: reward per world {np.mean(score[-10:]):.3f}")


if __name__ == "__main__":
    main()
