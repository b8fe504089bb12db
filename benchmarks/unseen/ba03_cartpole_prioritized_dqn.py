import torch_xla
import torch_xla.core.xla_model as xm

import copy
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class CartPole:
    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.s = [self.rng.uniform(-0.05, 0.05) for _ in range(4)]
        self.t = 0
        return list(self.s)

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 if action == 1 else -10.0
        tmp = (force + 0.05 * w * w * math.sin(th)) / 1.1
        acc_th = (9.8 * math.sin(th) - math.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * math.cos(th) ** 2 / 1.1))
        acc_x = tmp - 0.05 * acc_th * math.cos(th) / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th]
        self.t += 1
        fell = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21
        return list(self.s), 1.0, fell, fell or self.t >= 200


class QNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, 2)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class PrioritizedReplay:
    def __init__(self, capacity, device, alpha=0.6, beta=0.4):
        self.capacity, self.device, self.alpha, self.beta = capacity, device, alpha, beta
        self.rows = torch.zeros(capacity, 11)
        self.priority = torch.zeros(capacity, device=device)
        self.size = self.cursor = 0

    def extend(self, rows):
        index = (self.cursor + torch.arange(len(rows))) % self.capacity
        self.rows[index] = torch.tensor(rows)
        where = index.to(self.device)
        self.priority.index_fill_(0, where, 1.0)
        self.cursor = (self.cursor + len(rows)) % self.capacity
        self.size = min(self.size + len(rows), self.capacity)

    def sample(self, n):
        scaled = self.priority[:self.size] ** self.alpha
        p = scaled / scaled.sum()
        noise = -torch.log(torch.rand(self.size).clamp(min=1e-9)).to(self.device)
        index = (p / noise).topk(n).indices
        weight = (self.size * p[index]) ** -self.beta
        return index, weight / weight.max()

    def update(self, index, error):
        self.priority.index_copy_(0, index, error.abs() + 1e-3)


class Agent:
    def __init__(self, device, gamma=0.98, lr=1e-2):
        self.device, self.gamma = device, gamma
        self.q = QNet().to(device)
        self.target = copy.deepcopy(self.q)
        self.actor = QNet()
        self.opt = torch.optim.SGD(self.q.parameters(), lr=lr)

    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(2)
        with torch.no_grad():
            return int(self.actor(torch.tensor([state])).argmax())

    def pull_weights(self):
        self.actor.load_state_dict({k: v.cpu() for k, v in self.q.state_dict().items()})

    def learn(self, memory, batch):
        index, weight = memory.sample(batch)
        row = memory.rows[index.cpu()].to(self.device)
        s, a, r, s2, fell = row[:, :4], row[:, 4:5].long(), row[:, 5], row[:, 6:10], row[:, 10]
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            goal = r + self.gamma * (1 - fell) * self.target(s2).gather(1, best).squeeze(1)
        error = self.q(s).gather(1, a).squeeze(1) - goal
        loss = (weight * F.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        memory.update(index, error.detach())
        xm.mark_step()


def main(rounds=60, per_round=64, batch=32, updates=3):
    torch.manual_seed(0)
    random.seed(0)
    device = torch.device("xla")
    env, agent = CartPole(random.Random(1)), Agent(device)
    memory = PrioritizedReplay(448, device)
    state, total, lengths = env.reset(), 0.0, []
    for r in range(rounds):
        rows = []
        epsilon = max(0.05, 1.0 - r / 30)
        for _ in range(per_round):
            action = agent.act(state, epsilon)
            nxt, reward, fell, over = env.step(action)
            rows.append(state + [float(action), reward] + nxt + [float(fell)])
            total += reward
            state = nxt
            if over:
                lengths.append(total)
                state, total = env.reset(), 0.0
        memory.extend(rows)
        if memory.size >= 4 * batch:
            for _ in range(updates):
                agent.learn(memory, batch)
        if r % 10 == 9:
            agent.pull_weights()
            agent.target.load_state_dict(agent.q.state_dict())
        if r % 15 == 14:
            print(f"round {r + 1} epsilon {epsilon:.2f} length {sum(lengths[-20:]) / len(lengths[-20:]):.1f}")


if __name__ == "__main__":
    main()
