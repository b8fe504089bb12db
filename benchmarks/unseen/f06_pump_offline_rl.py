"""Offline Q-learning for pump scheduling from a logged data set, with n-step returns and a slowly moving target."""
import copy
import random
from collections import namedtuple
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

Log = namedtuple("Log", "obs act rew")
OBS, ACTS, GAMMA = 10, 4, 0.97


def synthesize(length=6000, seed=0):
    g = torch.Generator().manual_seed(seed)
    obs = torch.randn(length, OBS, generator=g).cumsum(0)
    obs = (obs - obs.mean(0)) / obs.std(0)
    act = torch.randint(0, ACTS, (length,), generator=g)
    rew = obs[:, 0].cos() - 0.1 * act.float() + 0.2 * (act == (obs[:, 1] > 0).long() * 2).float()
    return Log(obs, act, rew)


class Windows:
    """Cuts trajectories of a look-ahead that is drawn anew for every batch."""

    def __init__(self, log, batch, seed=0, look_ahead=(1, 5)):
        self.log, self.batch = log, batch
        self.rnd = random.Random(seed)
        self.look_ahead = look_ahead

    def __iter__(self):
        while True:
            n = self.rnd.randint(*self.look_ahead)
            t0 = torch.tensor([self.rnd.randrange(len(self.log.rew) - n - 1) for _ in range(self.batch)])
            span = t0[:, None] + torch.arange(n)
            yield self.log.obs[t0], self.log.act[t0], self.log.rew[span], self.log.obs[t0 + n]


class QNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.value = nn.Linear(width, 1)
        self.adv = nn.Linear(width, ACTS)

    def forward(self, o):
        h = self.body(o)
        a = self.adv(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class SlowCopy:
    def __init__(self, online, tau):
        self.online, self.net, self.tau = online, copy.deepcopy(online).requires_grad_(False), tau

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.net.parameters(), self.online.parameters()):
            slow.lerp_(fast, self.tau)
            xm.mark_step()


def returns(rew):
    ret = torch.zeros_like(rew[:, 0])
    for k in reversed(range(rew.shape[1])):
        ret = rew[:, k] + GAMMA * ret
    return ret


class Learner:
    def __init__(self, device):
        self.device = device
        self.q = QNet().to(device)
        self.slow = SlowCopy(self.q, 0.01)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=1e-3)

    def learn(self, obs, act, rew, nxt):
        with torch.no_grad():
            best = self.q(nxt).argmax(-1, keepdim=True)
            boot = self.slow.net(nxt).gather(1, best).squeeze(1)
            goal = returns(rew) + GAMMA ** rew.shape[1] * boot
        qs = self.q(obs)
        taken = qs.gather(1, act[:, None]).squeeze(1)
        conservative = (qs.logsumexp(1) - taken).mean()
        loss = F.smooth_l1_loss(taken, goal) + 0.3 * conservative
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        xm.mark_step()
        self.slow.follow()
        return loss.detach()


def main(steps=180):
    torch.manual_seed(0)
    learner = Learner(torch_xla.device())
    feed = iter(Windows(synthesize(), 128))
    for i in range(1, steps + 1):
        batch = [t.to(learner.device) for t in next(feed)]
        loss = learner.learn(*batch)
        if i % 60 == 0:
            print(f"{i:4d} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
