"""PPO for a tug that must hold a barge against a tidal stream (vectorised toy simulator)."""
import time

import torch
import torch.nn as nn

ENVS, HORIZON, STACK, OBS, ACTIONS = 16, 64, 4, 6, 5
THRUSTS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


class Estuary:
    def __init__(self, count):
        self.count = count
        self.reset()

    def reset(self):
        self.position = torch.randn(self.count, 2)
        self.velocity = torch.zeros(self.count, 2)
        self.phase = torch.rand(self.count, 1) * 6.28
        return self.observe()

    def observe(self):
        return torch.cat([self.position, self.velocity, self.phase.sin(), self.phase.cos()], 1)

    def step(self, action):
        stream = 0.6 * torch.cat([self.phase.sin(), 0.3 * self.phase.cos()], 1)
        self.velocity = 0.9 * self.velocity + 0.2 * THRUSTS[action] + 0.1 * stream
        self.position = self.position + 0.2 * self.velocity
        self.phase = self.phase + 0.05
        distance = self.position.norm(dim=1)
        lost = distance > 4
        self.position[lost] = torch.randn(int(lost.sum()), 2)
        return self.observe(), -distance - 2 * lost.float()


class Helm(nn.Module):
    """Actor-critic over the last STACK observations."""

    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(OBS * STACK, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, ACTIONS), nn.Linear(width, 1)
        self.log_book = []
        self.dice = torch.Generator().manual_seed(1)

    def evaluate(self, stacked):
        h = self.trunk(stacked)
        return self.actor(h).log_softmax(1), self.critic(h)[:, 0]

    def remember(self, observation):
        self.log_book.append(observation)
        if len(self.log_book) > STACK:
            del self.log_book[0]
        padding = [torch.zeros_like(observation)] * (STACK - len(self.log_book))
        return torch.cat(padding + list(self.log_book), 1)

    def throw(self, count):
        return torch.rand(count, ACTIONS, generator=self.dice)

    def act(self, stacked, noise):
        logits, value = self.evaluate(stacked)
        if noise is None:
            action = logits.argmax(1)
        else:
            action = (logits - (-noise.clamp(1e-6, 1 - 1e-6).log()).log()).argmax(1)
        chosen = logits.gather(1, action[:, None])[:, 0]
        return action, chosen, value


def ppo_loss(helm, stacked, action, old, advantage, target):
    logits, value = helm.evaluate(stacked)
    ratio = (logits.gather(1, action[:, None])[:, 0] - old).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    entropy = -(logits.exp() * logits).sum(1).mean()
    return 0.5 * (value - target).square().mean() - surrogate - 0.01 * entropy


@torch.no_grad()
def collect(env, helm, act, observation):
    rows = []
    for _ in range(HORIZON):
        stacked = helm.remember(observation)
        action, chosen, value = act(stacked, helm.throw(ENVS))
        observation, reward = env.step(action)
        rows.append((stacked, action, chosen, value, reward))
    stacked, action, chosen, value, reward = (torch.stack(column) for column in zip(*rows))
    advantage, carry = torch.zeros_like(reward), torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        following = value[t + 1] if t + 1 < HORIZON else value[t]
        carry = reward[t] + 0.97 * following - value[t] + 0.97 * 0.95 * carry
        advantage[t] = carry
    return observation, [x.flatten(0, 1) for x in (stacked, action, chosen, advantage, advantage + value)], reward.mean()


@torch.no_grad()
def sea_trial(helm, steps=40):
    """Reproducible greedy run of one tug."""
    env, total = Estuary(1), 0.0
    helm.log_book.clear()
    observation = env.reset()
    for _ in range(steps):
        action, *_ = helm.act(helm.remember(observation), None)
        observation, reward = env.step(action)
        total += reward.item()
    helm.log_book.clear()
    return total / steps


def main():
    torch.manual_seed(30)
    env, helm = Estuary(ENVS), Helm()
    act = torch.compile(helm.act, backend="aot_eager")
    loss_fn = torch.compile(ppo_loss, backend="aot_eager")
    optimizer = torch.optim.Adam(helm.parameters(), 7e-4)
    observation = env.reset()
    for iteration in range(40):
        began = time.perf_counter()
        observation, rollout, mean_reward = collect(env, helm, act, observation)
        rollout[3] = (rollout[3] - rollout[3].mean()) / (rollout[3].std() + 1e-6)
        for _ in range(3):
            for rows in torch.randperm(ENVS * HORIZON).split(256):
                loss = loss_fn(helm, *(x[rows] for x in rollout))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(helm.parameters(), 0.5)
                optimizer.step()
        if iteration % 4 == 3:
            print(f"iteration {iteration}: reward {mean_reward:.3f}, trial {sea_trial(helm):.3f}, "
                  f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
