"""Soft actor-critic on a point-mass task; the environment runs on the host, the replay memory lies on the device."""
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

OBS, ACT = 6, 2


class PointMass:
    """Reach the goal; the observation is position, velocity and goal."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.t, self.position, self.velocity = 0, np.zeros(2), np.zeros(2)
        self.goal = self.rng.uniform(-1, 1, 2)
        return self.observe()

    def observe(self):
        return np.concatenate([self.position, self.velocity, self.goal]).astype(np.float32)

    def step(self, action):
        self.t += 1
        self.velocity = 0.9 * self.velocity + 0.1 * action
        self.position = self.position + self.velocity
        reward = -float(np.abs(self.position - self.goal).sum())
        return self.observe(), reward, self.t >= 20


class Replay:
    def __init__(self, capacity, device):
        self.capacity, self.device = capacity, device
        self.rows = torch.zeros(capacity, 2 * OBS + ACT + 2, device=device)
        self.head = self.size = 0

    def add(self, obs, action, reward, following, done):
        row = np.concatenate([obs, action, [reward], following, [float(done)]]).astype(np.float32)
        self.rows[self.head] = torch.from_numpy(row).to(self.device)
        self.head = (self.head + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n):
        index = torch.from_numpy(np.random.randint(0, self.size, n)).to(self.device)
        return self.rows[index].split([OBS, ACT, 1, OBS, 1], dim=1)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, o))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS, 2 * ACT)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        noise = torch.randn_like(mean)
        action = torch.tanh(mean + log_std.exp() * noise)
        log_prob = (-0.5 * noise**2 - log_std - torch.log(1 - action**2 + 1e-6)).sum(-1, keepdim=True)
        return action, log_prob


class Agent:
    def __init__(self, device):
        self.actor, self.q1, self.q2 = Actor().to(device), mlp(OBS + ACT, 1).to(device), mlp(OBS + ACT, 1).to(device)
        self.targets = copy.deepcopy(nn.ModuleList([self.q1, self.q2])).requires_grad_(False)
        self.log_alpha = torch.zeros((), device=device, requires_grad=True)
        self.critic_optimizer = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=1e-3)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=1e-3)
        self.history = {"critic": [], "error": []}

    def update(self, obs, action, reward, following, done):
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_log_prob = self.actor(following)
            x = torch.cat([following, next_action], 1)
            q = torch.minimum(self.targets[0](x), self.targets[1](x)) - alpha * next_log_prob
            goal = reward + 0.98 * (1 - done) * q
        x = torch.cat([obs, action], 1)
        critic_loss = F.mse_loss(self.q1(x), goal) + F.mse_loss(self.q2(x), goal)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        new_action, log_prob = self.actor(obs)
        x = torch.cat([obs, new_action], 1)
        actor_loss = (alpha * log_prob - torch.minimum(self.q1(x), self.q2(x))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        alpha_loss = -(self.log_alpha * (log_prob.detach() - ACT)).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        with torch.no_grad():
            for target, source in zip(self.targets.parameters(), [*self.q1.parameters(), *self.q2.parameters()]):
                target.lerp_(source, 0.01)
        self.history["critic"].append(critic_loss.detach())
        error = self.q1(torch.cat([obs, action], 1)) - goal
        self.history["error"].append(error.abs().mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--collect", type=int, default=16)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=512)
    args = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    device = torch_xla.device()
    env, agent, replay = PointMass(0), Agent(device), Replay(4096, device)
    rng = np.random.default_rng(1)
    obs, returns, total = env.reset(), [], 0.0
    for iteration in range(args.iterations):
        for _ in range(args.collect):
            if iteration == 0:
                action = rng.uniform(-1, 1, ACT)
            else:
                with torch.no_grad():
                    action = agent.actor(torch.from_numpy(obs)[None].to(device))[0][0].cpu().numpy()
            following, reward, done = env.step(action)
            replay.add(obs, action, reward, following, done)
            xm.mark_step()
            total += reward
            obs = following
            if done:
                returns.append(total)
                obs, total = env.reset(), 0.0
        for _ in range(args.updates):
            agent.update(*replay.sample(args.batch_size))
            xm.mark_step()
    curve = torch.stack(agent.history["critic"]).cpu()
    error = torch.stack(agent.history["error"]).detach().cpu()
    print(f"{len(returns)} episodes, last return {returns[-1]:.2f}, critic loss {curve[:5].mean():.4f} -> {curve[-5:].mean():.4f}, TD error {error[-5:].mean():.3f}")


if __name__ == "__main__":
    main()
