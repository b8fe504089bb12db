"""Sparse mixture of experts on a mixture of regression tasks, top-1 routing with load balancing."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def tasks(n, n_tasks, d_in, seed=0):
    g = torch.Generator().manual_seed(seed)
    centre = 2.0 * torch.randn(n_tasks, d_in, generator=g)
    w1 = torch.randn(n_tasks, d_in, 8, generator=g)
    w2 = torch.randn(n_tasks, 8, generator=g)
    t = torch.randint(n_tasks, (n,), generator=g)
    x = centre[t] + 0.6 * torch.randn(n, d_in, generator=g)
    h = torch.einsum("ni,nij->nj", x - centre[t], w1[t]).tanh()
    return x, (h * w2[t]).sum(-1) + 0.05 * torch.randn(n, generator=g)


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, dim, hidden, n_experts):
        super().__init__()
        self.gate = nn.Linear(dim, n_experts)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(n_experts))
        self.n = n_experts

    def forward(self, x):
        prob = self.gate(x).softmax(-1)
        weight, choice = prob.max(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            mine = choice == e
            if mine.any():
                out[mine] = expert(x[mine])
        share = F.one_hot(choice, self.n).float().mean(0)
        balance = self.n * (share * prob.mean(0)).sum()
        return weight.unsqueeze(-1) * out, balance


class Net(nn.Module):
    def __init__(self, d_in, dim, hidden, n_experts, layers):
        super().__init__()
        self.inp = nn.Linear(d_in, dim)
        self.moe = nn.ModuleList(MoE(dim, hidden, n_experts) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        h = self.inp(x)
        aux = 0.0
        for norm, moe in zip(self.norm, self.moe):
            y, balance = moe(norm(h))
            h, aux = h + y, aux + balance
        return self.out(F.gelu(h)).squeeze(-1), aux


def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        err = (net(x)[0] - y).pow(2).mean() / y.var()
    net.train()
    return 1 - err.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--experts", type=int, default=6)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--balance", type=float, default=0.02)
    a = p.parse_args()
    torch.manual_seed(0)
    x, y = tasks(12_000, 6, 12)
    train_x, train_y, test_x, test_y = x[:10_000], y[:10_000], x[10_000:], y[10_000:]
    net = Net(12, 48, 64, a.experts, a.layers)
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), 3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.steps)
    t0 = time.time()
    running = torch.zeros(())
    for step in range(1, a.steps + 1):
        idx = torch.randint(len(train_x), (a.batch,))
        pred, aux = model(train_x[idx])
        mse = F.mse_loss(pred, train_y[idx])
        loss = mse + a.balance * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running += mse.detach()
        if step % 100 == 0:
            print(f"step {step} mse {running.item() / 100:.3f} R2 {evaluate(net, test_x, test_y):.3f} "
                  f"{time.time() - t0:.1f}s", flush=True)
            running.zero_()


if __name__ == "__main__":
    main()
