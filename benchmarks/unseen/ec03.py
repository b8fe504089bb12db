"""PPO on a small vectorised pole-balancing task; the update is compiled, coefficients are annealed."""
import math
import time

import torch
import torch.nn as nn
from torch.distributions import Categorical

N_ENVS, HORIZON, ITERS, EPOCHS, MINI = 32, 48, 26, 3, 512


class Poles:
    """Batch of cart-poles with simple Euler physics."""

    def __init__(self, n, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.n = n
        self.state = self._fresh(n)
        self.age = torch.zeros(n)

    def _fresh(self, n):
        return (torch.rand(n, 4, generator=self.g) - 0.5) * 0.1

    def step(self, action):
        x, v, th, w = self.state.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        sin, cos = th.sin(), th.cos()
        tmp = (force + 0.05 * w * w * sin) / 1.1
        acc_th = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        acc_x = tmp - 0.05 * acc_th * cos / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th], 1)
        self.age += 1
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21) | (self.age >= 200)
        lengths = self.age[done]
        self.state = torch.where(done[:, None], self._fresh(self.n), self.state)
        self.age = torch.where(done, 0.0, self.age)
        return torch.ones(self.n), done.float(), lengths


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        def mlp(out):
            return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                 nn.Linear(hidden, out))
        self.pi, self.v = mlp(2), mlp(1)

    def forward(self, obs):
        return self.pi(obs), self.v(obs).squeeze(-1)


class PPOLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.clip, self.vf, self.ent = 0.2, 0.5, 0.01

    def forward(self, obs, act, old_logp, adv, ret):
        logits, value = self.net(obs)
        logp_all = logits.log_softmax(-1)
        logp = logp_all.gather(1, act[:, None]).squeeze(1)
        ratio = (logp - old_logp).exp()
        surr = torch.min(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv).mean()
        entropy = -(logp_all.exp() * logp_all).sum(-1).mean()
        return -surr + self.vf * (value - ret).pow(2).mean() - self.ent * entropy


def rollout(env, net):
    buf = {k: [] for k in ("obs", "act", "logp", "val", "rew", "done")}
    lengths = []
    with torch.no_grad():
        for _ in range(HORIZON):
            obs = env.state
            logits, val = net(obs)
            dist = Categorical(logits=logits, validate_args=False)
            act = dist.sample()
            rew, done, ended = env.step(act)
            lengths.append(ended)
            for k, x in zip(buf, (obs, act, dist.log_prob(act), val, rew, done)):
                buf[k].append(x)
        last = net(env.state)[1]
    b = {k: torch.stack(v) for k, v in buf.items()}
    adv, run = torch.zeros_like(b["rew"]), torch.zeros(N_ENVS)
    for t in reversed(range(HORIZON)):
        nxt = last if t == HORIZON - 1 else b["val"][t + 1]
        alive = 1 - b["done"][t]
        run = b["rew"][t] + 0.99 * nxt * alive - b["val"][t] + 0.99 * 0.95 * alive * run
        adv[t] = run
    b["ret"] = adv + b["val"]
    b["adv"] = (adv - adv.mean()) / (adv.std() + 1e-8)
    return {k: v.flatten(0, 1) for k, v in b.items()}, torch.cat(lengths)


def train():
    torch.manual_seed(1)
    env, net = Poles(N_ENVS), ActorCritic()
    loss_mod = PPOLoss(net)
    loss_fn = torch.compile(loss_mod, backend="aot_eager")
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for it in range(ITERS):
        t0 = time.time()
        frac = it / ITERS
        loss_mod.clip = 0.1 + 0.1 * (1 - frac)                       # tighten the trust region
        loss_mod.ent = 0.001 + 0.01 * 0.5 * (1 + math.cos(math.pi * frac))
        b, lengths = rollout(env, net)
        for _ in range(EPOCHS):
            for idx in torch.randperm(len(b["obs"])).split(MINI):
                loss = loss_fn(b["obs"][idx], b["act"][idx], b["logp"][idx], b["adv"][idx], b["ret"][idx])
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
        mean_len = lengths.mean().item() if len(lengths) else float("nan")
        print(f"iter {it:2d} episode length {mean_len:6.1f} loss {loss.item():.3f} {time.time() - t0:.2f}s",
              flush=True)


if __name__ == "__main__":
    train()
