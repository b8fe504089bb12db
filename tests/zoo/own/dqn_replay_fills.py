"""DQN: acts one state at a time, and learns from a replay buffer that gives smaller batches while it fills."""
import random
from collections import deque
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
random.seed(0)
device = torch_xla.device()
BATCH, ACTIONS = 12, 3


class Line:
    """A walk on a line of nine places."""

    def reset(self):
        self.at = 4
        return self.state()

    def state(self):
        return [float(i == self.at) for i in range(9)]

    def step(self, action):
        self.at = min(8, max(0, self.at + action - 1))
        return self.state(), float(self.at == 8), self.at in (0, 8)


class Agent:
    def __init__(self):
        self.q = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, ACTIONS)).to(device)
        self.optimizer = torch.optim.SGD(self.q.parameters(), lr=0.05)
        self.memory = deque(maxlen=500)

    @torch.no_grad()
    def act(self, state):
        q = self.q(torch.tensor([state]).to(device))
        return q.argmax(1).item()

    def learn(self):
        batch = random.sample(self.memory, min(BATCH, len(self.memory)))
        s, a, r, n, d = (torch.tensor(column) for column in zip(*batch))
        s, a, r, n, d = (t.to(device) for t in (s, a, r, n, d.float()))
        with torch.no_grad():
            target = r + 0.9 * (1 - d) * self.q(n).amax(1)
        value = self.q(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        torch_xla.sync()


env, agent = Line(), Agent()
torch_xla.sync()
state = env.reset()
for step in range(32):
    action = agent.act(state)
    following, reward, done = env.step(action)
    agent.memory.append((state, action, reward, following, done))
    state = env.reset() if done else following
    if (step + 1) % 4 == 0:
        agent.learn()
print("remembered", len(agent.memory))
