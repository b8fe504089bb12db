"""Double DQN on a batch of vectorised cart-poles. The environments run in NumPy, so actions are read every step."""
import math
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm


class CartPoles:
    def __init__(self, n, seed=0, limit=200):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.state = self._fresh(n)
        self.age = np.zeros(n, dtype=np.int64)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, (k, 4)).astype(np.float32)

    def step(self, action):
        x, v, th, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w * w * s) / 1.1
        th_acc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        x_acc = tmp - 0.05 * th_acc * c / 1.1
        nxt = np.stack([x + 0.02 * v, v + 0.02 * x_acc, th + 0.02 * w, w + 0.02 * th_acc], 1).astype(np.float32)
        self.age += 1
        fell = (np.abs(nxt[:, 0]) > 2.4) | (np.abs(nxt[:, 2]) > 12 * math.pi / 180)
        done = fell | (self.age >= self.limit)
        lengths = self.age[done]
        obs_next = nxt.copy()
        nxt[done] = self._fresh(int(done.sum()))
        self.age[done] = 0
        self.state = nxt
        return obs_next, fell, lengths


class Replay:
    """A ring of fixed capacity on the host; batches always have one shape."""

    def __init__(self, capacity):
        self.s = np.zeros((capacity, 4), np.float32)
        self.s2 = np.zeros((capacity, 4), np.float32)
        self.a = np.zeros(capacity, np.int64)
        self.d = np.zeros(capacity, np.float32)
        self.capacity, self.size, self.pos = capacity, 0, 0

    def add(self, s, a, s2, d):
        idx = (self.pos + np.arange(len(a))) % self.capacity
        self.s[idx], self.a[idx], self.s2[idx], self.d[idx] = s, a, s2, d
        self.pos = (self.pos + len(a)) % self.capacity
        self.size = min(self.size + len(a), self.capacity)

    def sample(self, k, rng, device):
        idx = rng.integers(0, self.size, k)
        return [torch.from_numpy(v[idx]).to(device) for v in (self.s, self.a, self.s2, self.d)]


def q_net(width=256):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))


def act(net, obs, eps, rng, device):
    with torch.no_grad():
        greedy = net(torch.from_numpy(obs).to(device)).argmax(1).cpu().numpy()   # the simulator needs it
    explore = rng.random(len(obs)) < eps
    return np.where(explore, rng.integers(0, 2, len(obs)), greedy)


def learn(net, target, opt, batch, gamma=0.98):
    s, a, s2, d = batch
    q = net(s).gather(1, a[:, None]).squeeze(1)
    with torch.no_grad():
        best = net(s2).argmax(1, keepdim=True)
        goal = 1.0 + gamma * (1 - d) * target(s2).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(q, goal)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    opt.step()
    torch_xla.sync()
    return loss.detach()


def main(steps=900, n_envs=32, batch=512):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = torch_xla.device()
    net, target = q_net().to(device), q_net().to(device)
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    envs, replay = CartPoles(n_envs), Replay(20000)
    recent, losses, begin = deque(maxlen=64), [], time.time()
    for step in range(1, steps + 1):
        obs = envs.state.copy()
        eps = max(0.05, 1.0 - step / 400)
        action = act(net, obs, eps, rng, device)
        nxt, fell, lengths = envs.step(action)
        replay.add(obs, action, nxt, fell.astype(np.float32))
        recent.extend(lengths.tolist())
        if replay.size >= 2000:
            losses.append(learn(net, target, opt, replay.sample(batch, rng, device)))
        if step % 50 == 0:
            with torch.no_grad():
                for p, q in zip(target.parameters(), net.parameters()):
                    p.copy_(q)
            torch_xla.sync()
        if step % 150 == 0:
            loss = torch.stack(losses[-32:]).mean().item() if len(losses) >= 32 else float("nan")
            print(f"step {step}: loss {loss:.3f}  mean episode {np.mean(recent):.1f}  ({time.time() - begin:.1f} s)")
            losses.clear()


if __name__ == "__main__":
    main()
