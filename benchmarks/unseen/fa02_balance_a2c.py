"""Advantage actor-critic on a batch of cart-poles simulated on the XLA device."""
import math
import time

import torch
import torch.nn as nn
import torch_xla

N_ENVS, HORIZON, UPDATES = 48, 16, 14
GAMMA, LAMBDA = 0.99, 0.95


class CartPoles:
    """N cart-poles at once; the state (x, v, angle, angular speed) lives on the device."""

    def __init__(self, n, device):
        self.n, self.device = n, device
        self.state = self.fresh(n)
        self.ret = torch.zeros(n, device=device)
        self.age = torch.zeros(n, device=device)

    def fresh(self, k):
        return torch.rand(k, 4, device=self.device) * 0.1 - 0.05

    def step(self, action):
        x, v, th, w = self.state.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        cos, sin = th.cos(), th.sin()
        tmp = (force + 0.05 * w * w * sin) / 1.1
        acc = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        a = tmp - 0.05 * acc * cos / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * a, th + 0.02 * w, w + 0.02 * acc], 1)
        self.age = self.age + 1
        self.ret = self.ret + 1.0
        fallen = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 12 * math.pi / 180) | (self.age >= 200)
        return self.state, torch.ones(self.n, device=self.device), fallen

    def reset_done(self, done):
        idx = done.nonzero().squeeze(1)
        if idx.numel():
            self.state[idx] = self.fresh(idx.numel())
            self.ret[idx] = 0.0
            self.age[idx] = 0.0
        return self.state


class ActorCritic(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi, self.v = nn.Linear(hidden, 2), nn.Linear(hidden, 1)

    def forward(self, s):
        h = self.body(s)
        return self.pi(h), self.v(h).squeeze(-1)


class EpisodeLog:
    def __init__(self, window=100):
        self.returns, self.window = [], window

    def update(self, done, ret):
        for i in range(len(done)):
            if done[i]:
                self.returns.append(ret[i].item())

    @property
    def mean(self):
        last = self.returns[-self.window:]
        return sum(last) / max(1, len(last))


@torch.no_grad()
def collect(envs, model, log):
    states, actions, rewards, dones, values = [], [], [], [], []
    s = envs.state
    for _ in range(HORIZON):
        logits, v = model(s)
        gumbel = -torch.log(-torch.log(torch.rand_like(logits) + 1e-9) + 1e-9)
        a = (logits + gumbel).argmax(1)
        nxt, r, done = envs.step(a)
        states.append(s), actions.append(a), rewards.append(r), values.append(v)
        dones.append(done.float())
        torch_xla.sync()
        log.update(done, envs.ret)
        s = envs.reset_done(done)
        torch_xla.sync()
    values.append(model(s)[1])
    adv, out = torch.zeros_like(values[0]), []
    for t in reversed(range(HORIZON)):
        live = 1 - dones[t]
        delta = rewards[t] + GAMMA * values[t + 1] * live - values[t]
        adv = delta + GAMMA * LAMBDA * live * adv
        out.append(adv)
    adv = torch.stack(out[::-1])
    returns = adv + torch.stack(values[:-1])
    torch_xla.sync()
    return torch.cat(states), torch.cat(actions), adv.reshape(-1), returns.reshape(-1)


def update(model, opt, s, a, adv, returns):
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    logits, v = model(s)
    logp = logits.log_softmax(1)
    pg = -(logp.gather(1, a[:, None]).squeeze(1) * adv).mean()
    entropy = -(logp.exp() * logp).sum(1).mean()
    loss = pg + 0.5 * (v - returns).pow(2).mean() - 0.01 * entropy
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    torch_xla.sync()
    return loss.detach(), entropy.detach()


def main():
    torch.manual_seed(3)
    torch_xla.manual_seed(3)
    device = torch_xla.device()
    model = ActorCritic().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
    envs, log = CartPoles(N_ENVS, device), EpisodeLog()
    t0 = time.time()
    for it in range(1, UPDATES + 1):
        loss, entropy = update(model, opt, *collect(envs, model, log))
        if it % 2 == 0:
            print(f"update {it:3d} loss {loss.item():8.3f} entropy {entropy.item():.3f} "
                  f"return {log.mean:6.1f} episodes {len(log.returns)} {time.time() - t0:.1f} s", flush=True)


if __name__ == "__main__":
    main()
