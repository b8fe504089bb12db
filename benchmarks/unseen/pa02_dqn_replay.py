"""Double DQN on a small vectorised pendulum-like task with a replay memory on the accelerator."""
import torch_xla
import dataclasses
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Config:
    n_envs: int = 8
    capacity: int = 16
    warmup: int = 6
    env_steps: int = 80
    batch: int = 64
    gamma: float = 0.97
    target_every: int = 40
    log_every: int = 20
    lr: float = 1e-3


class CartEnvs:
    """Numpy environment: keep a cart in the middle with three thrusts."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.normal(size=(n, 4)).astype(np.float32)

    def step(self, action):
        thrust = (action - 1).astype(np.float32)
        s = self.state
        s[:, 1] += 0.1 * thrust - 0.02 * np.sin(s[:, 0])
        s[:, 0] += 0.1 * s[:, 1]
        s[:, 3] += 0.05 * thrust - 0.1 * s[:, 2]
        s[:, 2] += 0.1 * s[:, 3]
        reward = np.exp(-s[:, 0] ** 2 - 0.1 * s[:, 2] ** 2)
        done = np.abs(s[:, 0]) > 3.0
        fresh = self.rng.normal(size=s.shape).astype(np.float32)
        self.state = np.where(done[:, None], fresh, s).astype(np.float32)
        return self.state.copy(), reward.astype(np.float32), done.astype(np.float32)


class Memory:
    def __init__(self, cfg, obs_dim, device):
        c, n = cfg.capacity, cfg.n_envs
        self.obs = torch.zeros(c, n, obs_dim, device=device)
        self.nxt = torch.zeros(c, n, obs_dim, device=device)
        self.scal = torch.zeros(c, n, 3, device=device)
        self.cap, self.head, self.size = c, 0, 0

    def push(self, obs, action, reward, done, nxt):
        i = self.head
        self.obs[i] = obs
        self.nxt[i] = nxt
        self.scal[i] = torch.stack([action, reward, done], -1)
        self.head = (i + 1) % self.cap
        self.size = min(self.size + 1, self.cap)

    def sample(self, batch, rng):
        rows = torch.from_numpy(rng.integers(0, self.size, batch)).to(self.obs.device)
        cols = torch.from_numpy(rng.integers(0, self.obs.shape[1], batch)).to(self.obs.device)
        return self.obs[rows, cols], self.scal[rows, cols], self.nxt[rows, cols]


def q_network(obs_dim, actions):
    return nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, actions))


class Agent:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        self.online, self.target = q_network(4, 3).to(device), q_network(4, 3).to(device)
        self.target.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.Adam(self.online.parameters(), lr=cfg.lr)

    @torch.no_grad()
    def act(self, obs, eps, rng):
        greedy = self.online(obs).argmax(-1).cpu().numpy()
        explore = rng.random(len(greedy)) < eps
        return np.where(explore, rng.integers(0, 3, len(greedy)), greedy)

    def learn(self, memory, rng):
        obs, scal, nxt = memory.sample(self.cfg.batch, rng)
        action, reward, done = scal[:, 0].long(), scal[:, 1], scal[:, 2]
        with torch.no_grad():
            best = self.online(nxt).argmax(-1, keepdim=True)
            backup = reward + self.cfg.gamma * (1 - done) * self.target(nxt).gather(1, best).squeeze(1)
        q = self.online(obs).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, backup)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()


def main():
    cfg, device = Config(), torch.device("xla")
    torch.manual_seed(0)
    rng = np.random.default_rng(3)
    envs, agent = CartEnvs(cfg.n_envs, 1), Agent(cfg, device)
    memory = Memory(cfg, 4, device)
    obs, loss, gained = torch.from_numpy(envs.state.copy()).to(device), None, 0.0
    for step in range(cfg.env_steps):
        eps = 0.05 + 0.95 * math.exp(-step / 60)
        action = agent.act(obs, eps, rng)
        nxt, reward, done = envs.step(action)
        to = lambda a: torch.as_tensor(a, dtype=torch.float32).to(device)
        nxt = to(nxt)
        memory.push(obs, to(action), to(reward), to(done), nxt)
        obs, gained = nxt, gained + float(reward.mean())
        if memory.size >= cfg.warmup:
            loss = agent.learn(memory, rng)
        torch_xla.sync()
        if step % cfg.target_every == 0:
            agent.target.load_state_dict(agent.online.state_dict())
        if (step + 1) % cfg.log_every == 0:
            print(f"step {step + 1} eps {eps:.2f} loss {loss.item():.4f} mean reward {gained / (step + 1):.3f}")


if __name__ == "__main__":
    main()
