"""A small mixture-of-experts regressor for router telemetry, compiled with aot_eager."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.a, self.b = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


class MoELayer(nn.Module):
    """Each token goes to its best expert only."""

    def __init__(self, d, experts=4, hidden=64):
        super().__init__()
        self.gate = nn.Linear(d, experts)
        self.experts = nn.ModuleList([Expert(d, hidden) for _ in range(experts)])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probs = self.gate(flat).softmax(-1)
        weight, choice = probs.max(-1)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows = torch.where(choice == e)[0]
            if rows.numel() == 0:
                continue
            out = out.index_add(0, rows, expert(flat[rows]) * weight[rows, None])
        share = F.one_hot(choice, len(self.experts)).float().mean(0)
        balance = len(self.experts) * (share * probs.mean(0)).sum()
        return out.view_as(x), balance


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mix = nn.Linear(d, d)
        self.moe = MoELayer(d)

    def forward(self, x):
        x = x + self.mix(self.n1(x))
        y, balance = self.moe(self.n2(x))
        return x + y, balance


class Telemetry(nn.Module):
    def __init__(self, features=10, d=32):
        super().__init__()
        self.inp = nn.Linear(features, d)
        self.blocks = nn.ModuleList([Block(d)])
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h, aux = self.inp(x), 0.0
        for block in self.blocks:
            h, balance = block(h)
            aux = aux + balance
        return self.out(h.mean(1)).squeeze(-1), aux


def stream(steps, batch, window, features, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(batch, window, features, generator=g)
        kind = torch.randint(0, 4, (batch,), generator=g)
        x[..., 0] += kind[:, None]
        y = torch.where(kind % 2 == 0, x[..., 1].mean(1), x[..., 2].abs().mean(1)) * (1 + kind)
        yield x, y


def train(steps=400, batch=32, window=16, features=10):
    torch.manual_seed(0)
    net = Telemetry(features)
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, foreach=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    t0, running = time.time(), torch.zeros(())
    for step, (x, y) in enumerate(stream(steps, batch, window, features, 1), 1):
        pred, aux = model(x)
        loss = F.mse_loss(pred, y) + 0.01 * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running += loss.detach()
        if step % 100 == 0:
            print(f"step {step} loss {running.item() / 100:.4f} {time.time() - t0:.1f}s", flush=True)
            running.zero_()


if __name__ == "__main__":
    train()
