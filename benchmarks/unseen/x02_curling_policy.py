"""A policy for sweeping in curling: where to put the broom so that the stone stops on the button."""

from dataclasses import dataclass
import time

import torch
from torch import nn
from torch.distributions import Normal

import torch_xla


@dataclass
class RinkConfig:
    sheets: int = 64
    horizon: int = 5
    friction: float = 0.11
    curl: float = 0.05
    gamma: float = 0.97
    entropy: float = 0.003
    updates: int = 40
    lr: float = 3e-3


class Rink:
    """A batch of sheets of ice, simulated on the device."""

    def __init__(self, cfg, device):
        self.cfg = cfg
        self.device = device

    def throw(self):
        n = self.cfg.sheets
        self.position = torch.stack([torch.zeros(n, device=self.device), torch.rand(n, device=self.device) - 0.5], 1)
        self.velocity = torch.stack(
            [1.5 + 0.3 * torch.rand(n, device=self.device), 0.1 * torch.randn(n, device=self.device)], 1
        )
        self.spin = torch.sign(torch.randn(n, device=self.device))
        return self.observe()

    def observe(self):
        return torch.cat([self.position, self.velocity, self.spin[:, None]], dim=1)

    def sweep(self, effort):
        """`effort` (n, 2): the pressure on the left and the right of the stone, each in (0, 1)."""
        cfg = self.cfg
        drag = cfg.friction * (1.6 - effort.mean(1, keepdim=True))
        turn = self.spin * cfg.curl + 0.1 * (effort[:, 1] - effort[:, 0])
        speed = (1 - drag) * self.velocity
        self.velocity = torch.stack([speed[:, 0], speed[:, 1] + turn * speed[:, 0]], 1)
        self.position = self.position + 0.5 * self.velocity
        distance = (self.position - torch.tensor([4.0, 0.0], device=self.device)).norm(dim=1)
        return self.observe(), -0.1 * distance - 0.02 * effort.sum(1)


class Skip(nn.Module):
    def __init__(self, observations=5, actions=2, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observations, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.aim = nn.Linear(width, actions)
        self.log_scale = nn.Parameter(torch.full((actions,), -0.5))
        self.value = nn.Linear(width, 1)

    def forward(self, observation):
        hidden = self.trunk(observation)
        return Normal(self.aim(hidden), self.log_scale.exp().expand(len(hidden), -1)), self.value(hidden).squeeze(-1)


def play(rink, skip, cfg):
    observation = rink.throw()
    log_probs, values, rewards, entropies = [], [], [], []
    for _ in range(cfg.horizon):
        policy, value = skip(observation)
        action = policy.sample()
        log_probs.append(policy.log_prob(action).sum(-1))
        entropies.append(policy.entropy().sum(-1))
        values.append(value)
        observation, reward = rink.sweep(torch.sigmoid(action))
        rewards.append(reward)
    return torch.stack(log_probs), torch.stack(values), torch.stack(rewards), torch.stack(entropies)


def discounted(rewards, gamma):
    returns = []
    running = torch.zeros_like(rewards[0])
    for reward in rewards.flip(0):
        running = reward + gamma * running
        returns.append(running)
    return torch.stack(returns[::-1])


def update(rink, skip, optimizer, cfg):
    log_probs, values, rewards, entropies = play(rink, skip, cfg)
    returns = discounted(rewards, cfg.gamma)
    advantage = (returns - values).detach()
    spread = advantage.std()
    if spread > 1e-5:
        advantage = (advantage - advantage.mean()) / spread
    policy_loss = -(log_probs * advantage).mean()
    value_loss = (returns.detach() - values).pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - cfg.entropy * entropies.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(skip.parameters(), 1.0)
    optimizer.step()
    return rewards.sum(0).mean().detach(), loss.detach()


@torch.no_grad()
def house_distance(rink, skip, cfg):
    """Mean distance from the button with the policy's mode instead of a sample."""
    observation = rink.throw()
    for _ in range(cfg.horizon):
        hidden = skip.trunk(observation)
        observation, _ = rink.sweep(torch.sigmoid(skip.aim(hidden)))
    distance = (rink.position - torch.tensor([4.0, 0.0], device=rink.device)).norm(dim=1).mean()
    torch_xla.sync()
    return distance.item()


def main():
    cfg = RinkConfig()
    torch.manual_seed(5)
    device = torch_xla.device()
    rink = Rink(cfg, device)
    skip = Skip().to(device)
    optimizer = torch.optim.Adam(skip.parameters(), lr=cfg.lr)
    started = time.time()
    print(f"before: {house_distance(rink, skip, cfg):.3f} m from the button")
    for number in range(1, cfg.updates + 1):
        reward, loss = update(rink, skip, optimizer, cfg)
        torch_xla.sync()
        if number % 10 == 0:
            print(f"update {number:3d}  return {reward.item():7.3f}  loss {loss.item():7.3f}")
    print(f"after:  {house_distance(rink, skip, cfg):.3f} m  ({time.time() - started:.1f} s)")


if __name__ == "__main__":
    main()
