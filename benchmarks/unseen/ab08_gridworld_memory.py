"""Recurrent-free agent for a partially seen grid world: acts on its last few observations."""
import collections
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, VIEW, MEMORY, ACTIONS = 7, 3, 6, 4


class GridWorld:
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.goal = (self.rng.randrange(SIZE), self.rng.randrange(SIZE))
        self.pos = (self.rng.randrange(SIZE), self.rng.randrange(SIZE))
        self.t = 0
        return self.observe()

    def observe(self):
        dy, dx = self.goal[0] - self.pos[0], self.goal[1] - self.pos[1]
        near = max(abs(dy), abs(dx)) <= VIEW
        return torch.tensor([
            self.pos[0] / SIZE, self.pos[1] / SIZE, float(near),
            dy / SIZE * near, dx / SIZE * near])

    def step(self, action):
        m = self.moves[action]
        self.pos = tuple(min(SIZE - 1, max(0, p + d)) for p, d in zip(self.pos, m))
        self.t += 1
        won = self.pos == self.goal
        return self.observe(), (1.0 if won else -0.02), won or self.t >= 24


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.enc = nn.Linear(5, hidden)
        self.attn = nn.Linear(hidden, 1)
        self.pi = nn.Linear(2 * hidden, ACTIONS)
        self.v = nn.Linear(2 * hidden, 1)

    def forward(self, frames):
        h = torch.tanh(self.enc(torch.stack(frames, 1)))
        w = self.attn(h).softmax(1)
        z = torch.cat([(w * h).sum(1), h[:, -1]], -1)
        return self.pi(z), self.v(z).squeeze(-1)


def play(env, actor, temperature):
    frames = collections.deque(maxlen=MEMORY)
    track = []
    obs, done = env.reset(), False
    while not done:
        frames.append(obs.unsqueeze(0))
        window = list(frames)
        with torch.no_grad():
            logits, _ = actor(window)
        action = int(torch.distributions.Categorical(logits=logits / temperature).sample())
        obs, reward, done = env.step(action)
        track.append((window, action, reward))
    return track


def returns(track, gamma=0.97):
    out, g = [], 0.0
    for _, _, r in reversed(track):
        g = r + gamma * g
        out.append(g)
    return out[::-1]


def learn(policy, optimizer, tracks):
    windows, actions, gains = [], [], []
    for track in tracks:
        for (window, action, _), g in zip(track, returns(track)):
            blank = [torch.zeros_like(window[0])] * (MEMORY - len(window))
            windows.append(torch.cat(blank + window))
            actions.append(action)
            gains.append(g)
    frames = list(torch.stack(windows).unbind(1))
    actions, gains = torch.tensor(actions), torch.tensor(gains)
    logits, value = policy(frames)
    logp = F.log_softmax(logits, -1).gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = -(logp * (gains - value.detach())).mean() + 0.5 * F.mse_loss(value, gains)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    env = GridWorld(random.Random(0))
    policy = Policy()
    actor = torch.compile(policy, dynamic=False)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for it in range(40):
        temperature = max(0.5, 1.5 - it * 0.03)
        tracks = [play(env, actor, temperature) for _ in range(12)]
        loss = learn(policy, optimizer, tracks)
        if it % 10 == 0:
            score = sum(sum(r for _, _, r in t) for t in tracks) / len(tracks)
            print(f"iteration {it} loss {loss:.4f} return {score:.3f}")


if __name__ == "__main__":
    main()
