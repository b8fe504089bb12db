"""Double DQN on a batch of simulated inventory shops (order-up-to decisions under random demand)."""
import collections
import copy
import random

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

PRODUCTS, ACTIONS = 6, 9
Transition = collections.namedtuple("Transition", "state action reward next_state")


class Shops:
    """Vectorised environment: one product is ordered per step, in one of nine quantities."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n, self.t = n, 0
        self.stock = self.rng.integers(0, 12, (n, PRODUCTS)).astype(np.float32)
        self.mean = self.rng.uniform(0.5, 2.5, PRODUCTS)

    def observe(self):
        clock = np.zeros((self.n, PRODUCTS), np.float32)
        clock[:, self.t % PRODUCTS] = 1
        return np.concatenate([self.stock / 10, clock], 1)

    def step(self, action):
        k = self.t % PRODUCTS
        self.stock[:, k] = np.minimum(self.stock[:, k] + 2 * action, 30)
        demand = self.rng.poisson(self.mean, (self.n, PRODUCTS))
        sold = np.minimum(self.stock, demand)
        lost = demand - sold
        self.stock -= sold
        self.t += 1
        return (1.0 * sold - 0.12 * self.stock - 0.8 * lost).sum(1).astype(np.float32) / PRODUCTS


class Replay:
    def __init__(self, capacity):
        self.data = collections.deque(maxlen=capacity)

    def add(self, s, a, r, s2):
        for row in zip(s, a, r, s2):
            self.data.append(Transition(*row))

    def sample(self, n):
        rows = random.sample(self.data, n)
        state = torch.stack([torch.tensor(t.state) for t in rows])
        action = torch.tensor([int(t.action) for t in rows])
        reward = torch.tensor([float(t.reward) for t in rows])
        next_state = torch.stack([torch.tensor(t.next_state) for t in rows])
        return state, action, reward, next_state


class Dueling(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * PRODUCTS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.value, self.adv = nn.Linear(width, 1), nn.Linear(width, ACTIONS)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class Agent:
    def __init__(self, lr=1e-3, gamma=0.9):
        self.gamma = gamma
        self.net = Dueling()
        self.q = torch.compile(self.net)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.sync()

    def sync(self):
        """Hard update of the target network."""
        frozen = copy.deepcopy(self.net).eval().requires_grad_(False)
        self.target = torch.compile(frozen)

    @torch.no_grad()
    def act(self, obs, eps):
        best = self.net(torch.from_numpy(obs)).argmax(-1).numpy()
        explore = np.random.rand(len(obs)) < eps
        return np.where(explore, np.random.randint(0, ACTIONS, len(obs)), best)

    def learn(self, s, a, r, s2):
        with torch.no_grad():
            choice = self.q(s2).argmax(-1, keepdim=True)
            y = r + self.gamma * self.target(s2).gather(1, choice).squeeze(1)
        q = self.q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()


def main(steps=1600, batch=512, sync_every=50):
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    env, memory, agent = Shops(16, 3), Replay(20_000), Agent()
    losses, rewards = [], []
    for t in range(steps):
        s = env.observe()
        a = agent.act(s, eps=max(0.05, 1 - t / 800))
        r = env.step(a)
        memory.add(s, a, r, env.observe())
        rewards.append(r.mean())
        if len(memory.data) >= 1000:
            losses.append(agent.learn(*memory.sample(batch)))
            if t % sync_every == 0:
                agent.sync()
        if t % 200 == 199:
            tail = torch.stack(losses[-100:]).mean().item()
            print(f"step {t + 1:5d}  reward/step {np.mean(rewards[-200:]):+.3f}  loss {tail:.4f}")


if __name__ == "__main__":
    main()
