"""DQN on a batch of inverted pendulums (torque in five notches), compiled Q network, soft target updates."""
import math
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)
random.seed(5)
TORQUES = torch.tensor([-2.0, -0.8, 0.0, 0.8, 2.0])
GAMMA, TAU, BATCH, LR = 0.97, 0.01, 256, 1e-3


class Pendulums:
    """Many pendulums side by side; state: angle (0 is upright) and angular velocity."""

    def __init__(self, count):
        self.count = count
        self.reset()

    def reset(self):
        self.theta = (torch.rand(self.count) * 2 - 1) * math.pi
        self.omega = torch.rand(self.count) * 2 - 1
        return self.observe()

    def observe(self):
        return torch.stack([self.theta.cos(), self.theta.sin(), self.omega / 8], dim=1)

    def step(self, action):
        u = TORQUES[action]
        angle = torch.remainder(self.theta + math.pi, 2 * math.pi) - math.pi
        reward = -(angle**2 + 0.1 * self.omega**2 + 0.001 * u**2) / 16.3
        self.omega = (self.omega + 0.05 * (15 * self.theta.sin() + 3 * u)).clamp(-8, 8)
        self.theta = self.theta + 0.05 * self.omega
        return self.observe(), reward


class Replay:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def add(self, obs, action, reward, nxt):
        for row in zip(obs, action, reward, nxt):
            self.memory.append(row)

    def sample(self, k):
        obs, action, reward, nxt = zip(*random.sample(self.memory, k))
        return torch.stack(obs), torch.stack(action), torch.stack(reward), torch.stack(nxt)


class NoisyLinear(nn.Module):
    """A linear layer with factorised parameter noise that fades as the training goes on."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.mu = nn.Linear(n_in, n_out)
        self.sigma = nn.Parameter(torch.full((n_out, n_in), 0.4 / math.sqrt(n_in)))
        self.updates_done = 0

    def forward(self, x):
        if not self.training:
            return self.mu(x)
        fade = 0.99 ** self.updates_done
        noise = torch.randn_like(self.sigma[:, :1]) * torch.randn_like(self.sigma[:1])
        return F.linear(x, self.mu.weight + fade * self.sigma * noise, self.mu.bias)


class DuelingQ(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, hidden), nn.SiLU(), nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.SiLU())
        self.value = nn.Linear(hidden, 1)
        self.advantage = NoisyLinear(hidden, len(TORQUES))

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)


def evaluate(policy, steps=120):
    env = Pendulums(64)
    obs, total = env.reset(), torch.zeros(64)
    policy.eval()
    with torch.no_grad():
        for _ in range(steps):
            obs, r = env.step(policy(obs).argmax(dim=1))
            total += r
    policy.train()
    return total.mean().item()


def main(rounds=40, env_steps=12, updates=24):
    online, target = DuelingQ(), DuelingQ()
    target.load_state_dict(online.state_dict())
    target.eval()
    q, q_target = torch.compile(online, backend="aot_eager"), torch.compile(target, backend="aot_eager")
    opt = torch.optim.Adam(online.parameters(), lr=LR)
    env, replay = Pendulums(64), Replay(20000)
    obs = env.reset()
    print("before training:", round(evaluate(online), 3))
    for rnd in range(rounds):
        with torch.no_grad():
            for _ in range(env_steps):
                action = q(obs).argmax(dim=1)
                nxt, reward = env.step(action)
                replay.add(obs, action, reward, nxt)
                obs = nxt
        losses = []
        for _ in range(updates):
            o, a, r, n = replay.sample(BATCH)
            with torch.no_grad():
                goal = r + GAMMA * q_target(n).gather(1, online(n).argmax(dim=1, keepdim=True)).squeeze(1)
            loss = F.smooth_l1_loss(q(o).gather(1, a[:, None]).squeeze(1), goal)
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), TAU)
            losses.append(loss.detach())
        online.advantage.updates_done += 1
        if rnd % 8 == 7:
            print(f"round {rnd + 1}: loss {torch.stack(losses).mean().item():.5f}  return {evaluate(online):.3f}")
            obs = env.reset()


if __name__ == "__main__":
    main()
