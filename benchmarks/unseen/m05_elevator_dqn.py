"""Deep Q-learning for a bank of elevators: which car answers the next hall call."""
import copy
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

FLOORS, CARS = 12, 3


class Building:
    """One hall call per step; the action is the car. Reward: minus the waiting time."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.at = self.rng.integers(0, FLOORS, CARS).astype(np.float32)
        self.busy = np.zeros(CARS, np.float32)
        self.call = int(self.rng.integers(0, FLOORS))
        return self.observe()

    def observe(self):
        onehot = np.eye(FLOORS, dtype=np.float32)[self.call]
        return np.concatenate([self.at / FLOORS, self.busy / 10, np.abs(self.at - self.call) / FLOORS, onehot])

    def step(self, car):
        wait = abs(self.at[car] - self.call) + self.busy[car]
        self.busy = np.maximum(self.busy - 2, 0)
        self.busy[car] += abs(self.at[car] - self.call)
        self.at[car] = self.rng.integers(0, FLOORS)
        self.call = int(self.rng.integers(0, FLOORS))
        return self.observe(), -float(wait) / 10


class DuelingQ(nn.Module):
    def __init__(self, obs, actions, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.adv = nn.Linear(width, 1), nn.Linear(width, actions)

    def forward(self, x):
        h = self.body(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class DeviceReplay:
    """Transitions stay on the device; slots are overwritten in rounds."""

    def __init__(self, capacity, device):
        self.capacity, self.device = capacity, device
        self.items, self.cursor = [], 0

    def push(self, transitions):
        rows = torch.from_numpy(transitions).to(self.device)
        for row in rows.unbind(0):
            if len(self.items) < self.capacity:
                self.items.append(row)
            else:
                self.items[self.cursor] = row
                self.cursor = (self.cursor + 1) % self.capacity

    def sample(self, n):
        return torch.stack([self.items[i] for i in random.sample(range(len(self.items)), n)])


class Agent:
    def __init__(self, obs, device, gamma=0.9):
        self.device, self.gamma, self.obs = device, gamma, obs
        self.online = DuelingQ(obs, CARS).to(device)
        self.target = copy.deepcopy(self.online)
        self.opt = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.updates = 0

    @torch.no_grad()
    def act(self, observations, eps):
        q = self.online(torch.from_numpy(observations).to(self.device))
        greedy = q.argmax(1)
        return [random.randrange(CARS) if random.random() < eps else greedy[i].item() for i in range(len(observations))]

    def learn(self, batch):
        o, a, r, o2 = batch.split([self.obs, 1, 1, self.obs], dim=1)
        with torch.no_grad():
            best = self.online(o2).argmax(1, keepdim=True)
            goal = r + self.gamma * self.target(o2).gather(1, best)
        loss = F.smooth_l1_loss(self.online(o).gather(1, a.long()), goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % 50 == 0:
            self.target.load_state_dict(self.online.state_dict())
        torch_xla.sync()
        return loss.detach()


def rollout_step(envs, obs, agent, eps):
    actions = agent.act(obs, eps)
    rows, following = [], []
    for env, o, a in zip(envs, obs, actions):
        o2, r = env.step(a)
        rows.append(np.concatenate([o, [a, r], o2]).astype(np.float32))
        following.append(o2)
    return np.stack(following), np.stack(rows), float(np.mean([row[len(obs[0]) + 1] for row in rows]))


def main():
    random.seed(0)
    torch.manual_seed(0)
    device = torch.device("xla")
    envs = [Building(s) for s in range(8)]
    obs = np.stack([e.reset() for e in envs])
    agent, replay = Agent(obs.shape[1], device), DeviceReplay(512, device)
    torch_xla.sync()
    rewards, start = [], time.time()
    for t in range(120):
        eps = max(0.05, 1 - t / 80)
        obs, rows, reward = rollout_step(envs, obs, agent, eps)
        replay.push(rows)
        rewards.append(reward)
        if t % 4 == 3 and len(replay.items) >= 64:
            loss = agent.learn(replay.sample(32))
        if t % 30 == 29:
            print(f"t {t} eps {eps:.2f} reward {np.mean(rewards[-30:]):.3f} loss {loss.item():.4f} {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
