"""DQN with prioritised replay on a vectorised grid world; replay lives on the device."""
import numpy as np

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, ACTIONS, ENVS = 5, 4, 8
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class GridWorlds:
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.pos = self.rng.integers(0, SIZE, (n, 2))
        self.goal = self.rng.integers(0, SIZE, (n, 2))

    def observe(self):
        return np.concatenate([self.pos, self.goal, self.goal - self.pos], 1).astype(np.float32) / SIZE

    def step(self, actions):
        self.pos = np.clip(self.pos + MOVES[actions], 0, SIZE - 1)
        done = (self.pos == self.goal).all(1)
        reward = np.where(done, 1.0, -0.02).astype(np.float32)
        for i in np.nonzero(done)[0]:
            self.pos[i] = self.rng.integers(0, SIZE, 2)
            self.goal[i] = self.rng.integers(0, SIZE, 2)
        return self.observe(), reward, done


class PrioritisedReplay:
    def __init__(self, capacity, obs_dim, device, alpha=0.6):
        self.capacity, self.alpha, self.device = capacity, alpha, device
        self.obs = torch.zeros(capacity, obs_dim, device=device)
        self.nxt = torch.zeros(capacity, obs_dim, device=device)
        self.act = torch.zeros(capacity, dtype=torch.long, device=device)
        self.rew = torch.zeros(capacity, device=device)
        self.done = torch.zeros(capacity, device=device)
        self.prio = torch.zeros(capacity, device=device)
        self.head, self.count = 0, 0

    def add(self, obs, act, rew, nxt, done):
        n = len(obs)
        slots = (torch.arange(n) + self.head) % self.capacity
        slots = slots.to(self.device)
        put = lambda store, value: store.index_copy_(0, slots, torch.as_tensor(value).to(self.device))
        put(self.obs, obs), put(self.nxt, nxt), put(self.act, act), put(self.rew, rew)
        put(self.done, done.astype(np.float32))
        put(self.prio, np.ones(n, np.float32))
        self.head = (self.head + n) % self.capacity
        self.count = min(self.count + n, self.capacity)

    def sample(self, batch):
        p = self.prio[:self.count] ** self.alpha
        gumbel = -torch.log(-torch.log(torch.rand_like(p).clamp(1e-6, 1 - 1e-6)))
        idx = (torch.log(p + 1e-6) + gumbel).topk(batch).indices
        weight = (p[idx] / p.sum() * self.count).pow(-0.4)
        return idx, weight / weight.max()

    def update(self, idx, td):
        self.prio.index_copy_(0, idx, td.abs() + 1e-3)


def q_network():
    return nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, ACTIONS))


def learn(online, target, optimizer, memory, batch, gamma=0.95):
    idx, weight = memory.sample(batch)
    with torch.no_grad():
        best = online(memory.nxt[idx]).argmax(1, keepdim=True)
        boot = target(memory.nxt[idx]).gather(1, best).squeeze(1)
        goal = memory.rew[idx] + gamma * (1 - memory.done[idx]) * boot
    q = online(memory.obs[idx]).gather(1, memory.act[idx].unsqueeze(1)).squeeze(1)
    td = goal - q
    loss = (weight * F.huber_loss(q, goal, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    memory.update(idx, td.detach())
    with torch.no_grad():
        for t, o in zip(target.parameters(), online.parameters()):
            t.lerp_(o, 0.02)


@torch.no_grad()
def act(online, obs, epsilon, rng, device):
    greedy = online(torch.from_numpy(obs).to(device)).argmax(1).cpu().numpy()
    explore = rng.random(len(obs)) < epsilon
    return np.where(explore, rng.integers(0, ACTIONS, len(obs)), greedy)


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = xm.xla_device()
    envs = GridWorlds(ENVS, seed=3)
    online, target = q_network().to(device), q_network().to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    memory = PrioritisedReplay(1024, 6, device)
    obs, returns = envs.observe(), []
    for t in range(60):
        actions = act(online, obs, max(0.1, 1 - t / 50), rng, device)
        nxt, reward, done = envs.step(actions)
        memory.add(obs, actions, reward, nxt, done)
        obs = nxt
        returns.append(reward.sum())
        if t >= 50:
            learn(online, target, optimizer, memory, batch=32)
        xm.mark_step()
    print(f"mean reward per step {np.mean(returns[-20:]):.3f}, replay {memory.count}")


if __name__ == "__main__":
    main()
