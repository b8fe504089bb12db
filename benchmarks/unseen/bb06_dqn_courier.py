import random
import time
from dataclasses import dataclass

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


@dataclass
class Config:
    lanes: int = 8
    grid: int = 6
    capacity: int = 1024
    batch: int = 32
    gamma: float = 0.95
    lr: float = 3e-3
    steps: int = 36
    warmup: int = 10
    target_every: int = 12
    log_every: int = 12


class CourierWorld:
    """Vectorised grid on the host: a courier walks to a parcel."""

    MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, cfg, seed=0):
        self.cfg, self.gen = cfg, torch.Generator().manual_seed(seed)
        self.pos = self._draw(cfg.lanes)
        self.goal = self._draw(cfg.lanes)

    def _draw(self, n):
        return torch.randint(0, self.cfg.grid, (n, 2), generator=self.gen)

    def observe(self):
        g = self.cfg.grid
        return torch.cat([self.pos / g, self.goal / g, (self.goal - self.pos) / g], 1).float()

    def step(self, action):
        before = (self.goal - self.pos).abs().sum(1)
        self.pos = (self.pos + self.MOVES[action]).clamp(0, self.cfg.grid - 1)
        after = (self.goal - self.pos).abs().sum(1)
        done = after == 0
        reward = (before - after).float() * 0.1 + done.float()
        seen = self.observe()
        self.goal = torch.where(done[:, None], self._draw(self.cfg.lanes), self.goal)
        return seen, reward, done.float()


class Replay:
    def __init__(self, cfg, width, device):
        self.cfg, self.device = cfg, device
        self.obs = torch.zeros(cfg.capacity, width, device=device)
        self.nxt = torch.zeros(cfg.capacity, width, device=device)
        self.act = torch.zeros(cfg.capacity, dtype=torch.long, device=device)
        self.rew = torch.zeros(cfg.capacity, device=device)
        self.end = torch.zeros(cfg.capacity, device=device)
        self.head = self.filled = 0

    def push(self, obs, act, rew, nxt, end):
        rows = slice(self.head, self.head + self.cfg.lanes)
        for store, value in ((self.obs, obs), (self.act, act), (self.rew, rew),
                             (self.nxt, nxt), (self.end, end)):
            store[rows] = value.to(self.device)
        self.head = (self.head + self.cfg.lanes) % self.cfg.capacity
        self.filled = min(self.filled + self.cfg.lanes, self.cfg.capacity)

    def sample(self):
        pick = torch.randint(0, self.filled, (self.cfg.batch,)).to(self.device)
        return [t.index_select(0, pick) for t in (self.obs, self.act, self.rew, self.nxt, self.end)]


class QNet(nn.Module):
    def __init__(self, width, actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.value, self.adv = nn.Linear(32, 1), nn.Linear(32, actions)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, cfg, width, device):
        self.cfg, self.device = cfg, device
        self.net, self.target = QNet(width).to(device), QNet(width).to(device)
        self.target.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)

    @torch.no_grad()
    def act(self, obs, eps):
        greedy = self.net(obs.to(self.device)).argmax(1).cpu()
        explore = torch.rand(len(obs)) < eps
        return torch.where(explore, torch.randint(0, 4, (len(obs),)), greedy)

    def learn(self, replay):
        obs, act, rew, nxt, end = replay.sample()
        with torch.no_grad():
            best = self.net(nxt).argmax(1, keepdim=True)
            goal = rew + self.cfg.gamma * (1 - end) * self.target(nxt).gather(1, best).squeeze(1)
        q = self.net(obs).gather(1, act[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()


def main():
    random.seed(0)
    torch.manual_seed(0)
    cfg, device = Config(), torch.device("xla")
    world = CourierWorld(cfg)
    obs = world.observe()
    agent, replay = Agent(cfg, obs.shape[1], device), Replay(cfg, obs.shape[1], device)
    reward_sum, loss, began = 0.0, None, time.time()
    for step in range(1, cfg.steps + 1):
        eps = max(0.1, 1 - step / 24)
        act = agent.act(obs, eps)
        nxt, rew, end = world.step(act)
        replay.push(obs, act, rew, nxt, end)
        obs = nxt
        reward_sum += rew.mean().item()
        if step > cfg.warmup:
            loss = agent.learn(replay)
        if step % cfg.target_every == 0:
            agent.target.load_state_dict(agent.net.state_dict())
        xm.mark_step()
        if step % cfg.log_every == 0:
            shown = loss.item() if loss is not None else float("nan")
            print(f"step {step} eps {eps:.2f} reward {reward_sum / cfg.log_every:.3f} "
                  f"loss {shown:.4f} {time.time() - began:.1f}s", flush=True)
            reward_sum = 0.0


if __name__ == "__main__":
    main()
