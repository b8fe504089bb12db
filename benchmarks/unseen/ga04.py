"""REINFORCE with a baseline on a windy corridor: the policy runs on the host's worlds, learning on the device."""
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
from torch.distributions import Categorical

HORIZON = 48
NUM_WORLDS = 5
GAMMA = 0.97
UPDATES = 10


class WindyCorridor:
    """Many worlds at once: walk from the left end to the goal while wind pushes sideways."""

    def __init__(self, num, length=8, width=5, seed=0):
        self.num, self.length, self.width = num, length, width
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos = np.stack([np.zeros(self.num), np.full(self.num, self.width // 2)], axis=1)
        self.wind = self.rng.choice([-1, 0, 1], size=self.num)
        self.alive = np.ones(self.num, bool)
        return self.observe()

    def observe(self):
        return np.concatenate(
            [self.pos / [self.length, self.width], self.wind[:, None], np.cos(self.pos)], axis=1
        ).astype(np.float32)

    def step(self, action):
        move = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[action]
        gust = (self.rng.random(self.num) < 0.3) * self.wind
        pos = self.pos + move
        pos[:, 1] += gust
        self.pos = np.where(self.alive[:, None], pos, self.pos)
        self.pos[:, 0] = np.clip(self.pos[:, 0], 0, self.length)
        crashed = (self.pos[:, 1] < 0) | (self.pos[:, 1] >= self.width)
        arrived = self.pos[:, 0] >= self.length
        reward = np.where(self.alive, -0.05 + 3.0 * arrived - 1.0 * crashed, 0.0)
        was_alive = self.alive.copy()
        self.alive = self.alive & ~crashed & ~arrived
        return self.observe(), reward.astype(np.float32), was_alive


class ActorCritic(nn.Module):
    def __init__(self, obs=5, hidden=64, actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, actions)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h), validate_args=False), self.value(h).squeeze(-1)


@torch.no_grad()
def rollout(world, model, device):
    """Plays all worlds until every one of them has ended."""
    observations, actions, rewards, masks = [], [], [], []
    obs = world.reset()
    while world.alive.any() and len(rewards) < HORIZON:
        policy, _ = model(torch.from_numpy(obs).to(device))
        action = policy.sample().cpu().numpy()  # the worlds live on the host
        observations.append(obs)
        actions.append(action)
        obs, reward, mask = world.step(action)
        rewards.append(reward)
        masks.append(mask)
    return (np.stack(observations), np.stack(actions), np.stack(rewards), np.stack(masks).astype(np.float32))


def discounted(rewards):
    returns = []
    running = torch.zeros_like(rewards[0])
    for reward in reversed(rewards.unbind(0)):
        running = reward + GAMMA * running
        returns.append(running)
    return torch.stack(returns[::-1])


def update(model, optimizer, batch, device):
    obs, actions, rewards, masks = (torch.from_numpy(a).to(device) for a in batch)
    returns = discounted(rewards)
    policy, value = model(obs)
    advantage = (returns - value).detach() * masks
    count = masks.sum()
    actor = -(policy.log_prob(actions) * advantage).sum() / count
    critic = ((returns - value).square() * masks).sum() / count
    entropy = (policy.entropy() * masks).sum() / count
    loss = actor + 0.5 * critic - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    xm.mark_step()
    return loss.detach()


def main():
    torch.manual_seed(1)
    device = torch.device("xla")
    world = WindyCorridor(NUM_WORLDS, seed=5)
    model = ActorCritic().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    recent = deque(maxlen=10)
    start = time.time()
    for it in range(1, UPDATES + 1):
        batch = rollout(world, model, device)
        loss = update(model, optimizer, batch, device)
        recent.append(batch[2].sum(0).mean())
        if it % 5 == 0:
            print(f"update {it}: loss {loss.item():.3f}, return {np.mean(recent):.3f}, "
                  f"last length {len(batch[2])}, {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
