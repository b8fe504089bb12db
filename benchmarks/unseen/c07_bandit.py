"""A contextual bandit: a compiled scoring network, requests in bursts of different sizes, updates in fixed batches."""
import argparse
import collections
import random
import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch._dynamo import mark_dynamic


@dataclass
class Options:
    arms: int = 7
    context: int = 20
    width: int = 48
    epsilon: float = 0.3
    batch: int = 64


class Scores(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options
        self.layers = nn.ModuleList([nn.Linear(options.context, options.width)])
        self.layers.extend(nn.Linear(options.width, options.width) for _ in range(2))
        self.out = nn.Linear(options.width, options.arms)

    def forward(self, context):
        h = context
        for i in range(len(self.layers)):
            y = torch.relu(self.layers[i](h))
            h = y if i == 0 else h + y
        scores = self.out(h)
        # ties are broken on the device, not by the host
        return torch.where(scores > 0, scores, scores * 0.5)


class Environment:
    def __init__(self, options, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.random = random.Random(seed)
        self.weights = torch.randn(options.context, options.arms, generator=self.generator)
        self.options = options

    def burst(self):
        count = self.random.randint(2, 24)
        return torch.randn(count, self.options.context, generator=self.generator)

    def reward(self, context, arm):
        return torch.sigmoid((context @ self.weights).gather(1, arm[:, None]).squeeze(1))


def choose(score, context, options, chance):
    mark_dynamic(context, 0, min=2, max=64)
    with torch.no_grad():
        best = score(context).argmax(1)
    explore = torch.rand(len(context)) < chance
    return torch.where(explore, torch.randint(options.arms, (len(context),)), best)


def learn(net, replay, optimizer, options):
    context, arm, reward = (torch.stack(part) for part in zip(*random.sample(replay, options.batch)))
    guess = net(context).gather(1, arm[:, None]).squeeze(1)
    loss = nn.functional.mse_loss(guess, reward)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=120)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    options = Options()
    environment = Environment(options, 3)
    net = Scores(options)
    score = torch.compile(net)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    replay = collections.deque(maxlen=2000)
    rewards, losses = [], []
    chance = options.epsilon
    start = time.perf_counter()
    for step in range(args.rounds):
        context = environment.burst()
        arm = choose(score, context, options, chance)
        reward = environment.reward(context, arm)
        replay.extend(zip(context, arm, reward))
        rewards.append(reward.mean().item())
        chance *= 0.98
        if len(replay) >= options.batch:
            losses.append(learn(net, replay, optimizer, options))
        if step % 30 == 29:
            print(f"round {step + 1} reward {statistics.mean(rewards[-30:]):.3f} loss {statistics.mean(losses[-30:]):.4f}")
    print(f"{args.rounds / (time.perf_counter() - start):.1f} rounds/s")


if __name__ == "__main__":
    main()
