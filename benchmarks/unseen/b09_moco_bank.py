"""Contrastive pretraining with a momentum encoder and a memory bank."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm


class Config:
    features = 24
    dim = 16
    batch = 16
    bank = 96
    steps = 30
    momentum = 0.95
    tau_start, tau_end = 0.3, 0.1


class MemoryBank:
    def __init__(self, size, dim, device):
        self.keys = F.normalize(torch.randn(size, dim), dim=1).to(device)
        self.size = size
        self.ptr = 0

    @torch.no_grad()
    def enqueue(self, k):
        n = k.shape[0]
        self.keys[self.ptr:self.ptr + n] = k
        self.ptr = (self.ptr + n) % self.size


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cfg.features, 32), nn.ReLU(), nn.Linear(32, cfg.dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def views(x):
    """Two augmentations: random feature dropping and jitter, on the host."""
    def one():
        keep = (torch.rand_like(x) > 0.2).float()
        return x * keep + 0.1 * torch.randn_like(x)
    return one(), one()


@torch.no_grad()
def momentum_update(online, slow, m):
    for p, s in zip(online.parameters(), slow.parameters()):
        s.mul_(m).add_(p, alpha=1 - m)
        xm.mark_step()


def info_nce(q, k, bank, tau):
    positive = (q * k).sum(1, keepdim=True)
    negative = q @ bank.T
    logits = torch.cat([positive, negative], 1) / tau
    labels = torch.zeros(len(q), dtype=torch.long, device=q.device)
    return F.cross_entropy(logits, labels)


def main():
    cfg = Config()
    torch.manual_seed(2)
    device = torch_xla.device()
    online = Encoder(cfg).to(device)
    slow = copy.deepcopy(online).requires_grad_(False)
    bank = MemoryBank(cfg.bank, cfg.dim, device)
    opt = torch.optim.SGD(online.parameters(), lr=0.05)
    xm.mark_step()
    for step in range(cfg.steps):
        tau = cfg.tau_start + (cfg.tau_end - cfg.tau_start) * step / cfg.steps
        a, b = (v.to(device) for v in views(torch.randn(cfg.batch, cfg.features)))
        with torch.no_grad():
            k = slow(b)
        loss = info_nce(online(a), k, bank.keys.clone(), tau)
        opt.zero_grad()
        loss.backward()
        opt.step()
        bank.enqueue(k)
        xm.mark_step()
        momentum_update(online, slow, cfg.momentum)
        if (step + 1) % 15 == 0:
            print(f"step {step + 1} tau {tau:.3f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
