"""REINFORCE for the dispatching of two lifts in a building of eight floors. The policy is compiled."""
import random
import time
from collections import deque

import torch
from torch import nn
from torch.distributions import Categorical

FLOORS, LIFTS = 8, 2
UP, DOWN, STOP = range(3)


class Building:
    """People arrive at random floors; a lift moves or opens its doors. Reward: people delivered minus people waiting."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.reset()

    def reset(self):
        self.lifts = [0, FLOORS - 1]
        self.riders = [[], []]
        self.waiting = [deque(maxlen=4) for _ in range(FLOORS)]
        return self.observe()

    def observe(self):
        seen = []
        for lift in range(LIFTS):
            where = [0.0] * FLOORS
            where[self.lifts[lift]] = 1.0
            wanted = [0.0] * FLOORS
            for floor in self.riders[lift]:
                wanted[floor] += 0.5
            seen += where + wanted
        return seen + [len(q) / 4 for q in self.waiting]

    def step(self, actions):
        reward = 0.0
        for lift, action in enumerate(actions):
            floor = self.lifts[lift]
            if action == UP:
                self.lifts[lift] = min(FLOORS - 1, floor + 1)
            elif action == DOWN:
                self.lifts[lift] = max(0, floor - 1)
            else:
                reward += self.riders[lift].count(floor)
                self.riders[lift] = [f for f in self.riders[lift] if f != floor]
                while self.waiting[floor] and len(self.riders[lift]) < 4:
                    self.riders[lift].append(self.waiting[floor].popleft())
                    reward += 0.2
        if self.rng.random() < 0.5:
            start, goal = self.rng.sample(range(FLOORS), 2)
            self.waiting[start].append(goal)
        return self.observe(), reward - 0.02 * sum(map(len, self.waiting))


class Dispatcher(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(LIFTS * 2 * FLOORS + FLOORS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.Linear(width, LIFTS * 3)
        self.value = nn.Linear(width, 1)
        self.confidence = []

    def forward(self, seen):
        h = self.trunk(seen)
        logits = self.heads(h).unflatten(-1, (LIFTS, 3)).log_softmax(-1)
        self.confidence.append(logits.detach().max(-1).values.mean().exp())
        return logits, self.value(h).squeeze(-1)


def discounted(rewards, gamma):
    """rewards: one list per time step. Returns the same, with everything that follows."""
    returns = []
    for t in range(len(rewards)):
        total = [0.0] * len(rewards[0])
        for k, later in enumerate(rewards[t:]):
            total = [a + gamma ** k * r for a, r in zip(total, later)]
        returns.append(total)
    return torch.tensor(returns)


def roll_out(policy, buildings, length):
    seen = [b.reset() for b in buildings]
    observations, actions, rewards = [], [], []
    for _ in range(length):
        observation = torch.tensor(seen)
        with torch.no_grad():
            logits, _ = policy(observation)
        action = Categorical(logits=logits).sample()
        results = [b.step(a) for b, a in zip(buildings, action.tolist())]
        seen = [s for s, _ in results]
        rewards.append([r for _, r in results])
        observations.append(observation)
        actions.append(action)
    return torch.stack(observations), torch.stack(actions), rewards


def update(policy, optimizer, observations, actions, returns):
    logits, values = policy(observations.flatten(0, 1))
    chosen = Categorical(logits=logits)
    goal = returns.flatten()
    advantage = goal - values.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    gain = chosen.log_prob(actions.flatten(0, 1)).sum(-1) * advantage
    loss = -gain.mean() + 0.5 * (values - goal).square().mean() / 10 - 0.01 * chosen.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def main():
    torch.manual_seed(0)
    model = Dispatcher()
    policy = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    buildings = [Building(seed) for seed in range(8)]
    started = time.time()
    for iteration in range(1, 16):
        observations, actions, rewards = roll_out(policy, buildings, length=240)
        returns = discounted(rewards, gamma=0.97)
        loss = update(policy, optimizer, observations, actions, returns)
        sure = torch.stack(model.confidence).mean().item()
        model.confidence.clear()
        if iteration % 5 == 0:
            print(f"{iteration:3d}  loss {loss.item():+.3f}  reward {sum(map(sum, rewards)) / len(buildings):7.2f}  "
                  f"confidence {sure:.2f}  {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
