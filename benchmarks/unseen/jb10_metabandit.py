"""Meta-learned contextual bandit: an agent attends over its memory of past rounds of the episode.

Each episode has a hidden linear reward near a common one; the agent sees contexts, picks arms, and must
learn the reward from its own experience, kept in an episodic memory.
"""
import time

import torch
from torch import nn

ARMS, CONTEXT, ROUNDS, EPISODES, WIDTH = 5, 4, 20, 48, 32
COMMON = 1.8 * torch.randn(ARMS, CONTEXT, generator=torch.Generator().manual_seed(4))


class World:
    """A batch of bandit problems; reward is a logistic function of arm-specific scores."""

    def __init__(self, batch):
        self.theta = COMMON + 0.8 * torch.randn(batch, ARMS, CONTEXT)

    def observe(self):
        self.context = torch.randn(self.theta.shape[0], CONTEXT)
        return self.context

    def pull(self, arm):
        score = torch.einsum("bac,bc->ba", self.theta, self.context)
        chance = torch.sigmoid(score)
        reward = torch.bernoulli(chance.gather(1, arm[:, None]).squeeze(1))
        regret = chance.max(1).values - chance.gather(1, arm[:, None]).squeeze(1)
        return reward, regret


class Memory:
    """What happened so far in the episode."""

    def __init__(self):
        self.keys, self.values = [], []

    def write(self, context, arm, reward):
        self.keys.append(context)
        told = nn.functional.one_hot(arm, ARMS).float() * (2 * reward[:, None] - 1)
        self.values.append(torch.cat([told, context], -1))

    def read(self):
        return self.keys, self.values


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.ask = nn.Linear(CONTEXT, WIDTH)
        self.key = nn.Linear(CONTEXT, WIDTH)
        self.value = nn.Sequential(nn.Linear(ARMS + CONTEXT, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.empty = nn.Parameter(torch.randn(2, WIDTH) * 0.1)
        self.body = nn.Sequential(nn.Linear(2 * WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.GELU())
        self.policy = nn.Linear(WIDTH, ARMS)
        self.critic = nn.Linear(WIDTH, 1)

    def forward(self, context, keys, values):
        batch = context.shape[0]
        k, v = (row.expand(batch, 1, WIDTH) for row in self.empty)
        if keys:
            k = torch.cat([k, self.key(torch.stack(keys, 1))], 1)
            v = torch.cat([v, self.value(torch.stack(values, 1))], 1)
        q = self.ask(context)
        weights = torch.softmax((k @ q[:, :, None]).squeeze(-1) / WIDTH ** 0.5, -1)
        recalled = (weights[:, :, None] * v).sum(1)
        h = self.body(torch.cat([q, recalled], -1))
        return self.policy(h), self.critic(h).squeeze(-1)


def play(act, batch):
    world, memory = World(batch), Memory()
    log_probs, critics, rewards, regrets, entropies = [], [], [], [], []
    for _ in range(ROUNDS):
        context = world.observe()
        logits, critic = act(context, *memory.read())
        choice = torch.distributions.Categorical(logits=logits)
        arm = choice.sample()
        reward, regret = world.pull(arm)
        memory.write(context, arm, reward)
        log_probs.append(choice.log_prob(arm))
        entropies.append(choice.entropy())
        critics.append(critic)
        rewards.append(reward)
        regrets.append(regret)
    return (torch.stack(x) for x in (log_probs, critics, rewards, regrets, entropies))


def actor_critic_loss(log_probs, critics, rewards, entropies):
    advantage = rewards - critics.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    return (-(log_probs * advantage).mean() + 0.5 * (critics - rewards).square().mean()
            - 0.01 * entropies.mean())


def main():
    torch.manual_seed(1)
    agent = Agent()
    act = torch.compile(agent, backend="aot_eager")
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
    began, shown = time.perf_counter(), []
    for update in range(60):
        log_probs, critics, rewards, regrets, entropies = play(act, EPISODES)
        loss = actor_critic_loss(log_probs, critics, rewards, entropies)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        shown.append(torch.stack([rewards.mean(), regrets.mean()]).detach())
        if update % 15 == 14:
            reward, regret = torch.stack(shown[-15:]).mean(0).tolist()
            print(f"update {update + 1:3d}: reward {reward:.3f}, regret {regret:.3f}, "
                  f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
