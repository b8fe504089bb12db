"""Undo the browning of herbarium sheets: optimal transport of faded colours to fresh ones (Sinkhorn)."""
import argparse
import math
import time

import torch

import torch_xla
import torch_xla.core.xla_model as xm

XLA = xm.xla_device()


def palette(n, centre, spread, gen):
    base = torch.tensor(centre) + torch.randn(n, 3, generator=gen) * spread
    return base.clamp(0, 1)


def make_sheet(n, gen):
    """(faded colours, fresh colours, weights of both) of one sheet, in RGB."""
    fresh = torch.cat([palette(n // 2, (0.2, 0.6, 0.2), 0.1, gen), palette(n - n // 2, (0.8, 0.3, 0.5), 0.12, gen)])
    brown = torch.tensor([0.45, 0.35, 0.2])
    faded = 0.45 * fresh[torch.randperm(n, generator=gen)] + 0.55 * brown
    faded = (faded + 0.02 * torch.randn(n, 3, generator=gen)).clamp(0, 1)
    a = torch.rand(n, generator=gen) + 0.2
    b = torch.rand(n, generator=gen) + 0.2
    return faded, fresh, a / a.sum(), b / b.sum()


def similarity(x, y):
    """exp(-squared distance): its power 1/eps is the Gibbs kernel of regularisation eps."""
    return torch.exp(-((x[:, None] - y[None]) ** 2).sum(-1))


def sinkhorn(affinity, a, b, eps, u, tol, max_iter):
    """Scales rows and columns of affinity ** (1 / eps) until the marginals fit."""
    kernel = affinity ** (1.0 / eps)
    v = b / (kernel.t() @ u)
    err, it = math.inf, 0
    while err > tol and it < max_iter:
        u = a / (kernel @ v + 1e-30)
        v = b / (kernel.t() @ u + 1e-30)
        err = (u * (kernel @ v) - a).abs().sum().item()
        it += 1
        xm.mark_step()
    return kernel, u, v, it


def anneal(start, stop, n):
    ratio = (stop / start) ** (1.0 / (n - 1))
    return [start * ratio ** k for k in range(n)]


class Restorer:
    def __init__(self, levels, tol, max_iter):
        self.levels, self.tol, self.max_iter = levels, tol, max_iter

    def plan(self, faded, fresh, a, b):
        affinity = similarity(faded, fresh)
        u = torch.ones_like(a)
        xm.mark_step()
        iters = 0
        for eps in self.levels:
            kernel, u, v, n = sinkhorn(affinity, a, b, eps, u, self.tol, self.max_iter)
            iters += n
        return u[:, None] * kernel * v[None], iters

    def __call__(self, sheet):
        faded, fresh, a, b = (t.to(XLA) for t in sheet)
        plan, iters = self.plan(faded, fresh, a, b)
        restored = (plan @ fresh) / plan.sum(1, keepdim=True)
        cost = (plan * ((faded[:, None] - fresh[None]) ** 2).sum(-1)).sum()
        xm.mark_step()
        return restored, cost, iters


def colourfulness(x):
    rg = x[:, 0] - x[:, 1]
    yb = 0.5 * (x[:, 0] + x[:, 1]) - x[:, 2]
    return torch.sqrt(rg.var() + yb.var()) + 0.3 * torch.sqrt(rg.mean() ** 2 + yb.mean() ** 2)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--sheets", type=int, default=14)
    ap.add_argument("--colours", type=int, default=192)
    ap.add_argument("--levels", type=int, default=16)
    ap.add_argument("--tol", type=float, default=2e-4)
    args = ap.parse_args()

    gen = torch.Generator().manual_seed(11)
    restorer = Restorer(anneal(0.3, 0.02, args.levels), args.tol, 60)
    costs, gains = [], []
    begin = time.perf_counter()
    for k in range(args.sheets):
        sheet = make_sheet(args.colours, gen)
        restored, cost, iters = restorer(sheet)
        costs.append(cost)
        gains.append(colourfulness(restored) - colourfulness(sheet[0].to(XLA)))
        xm.mark_step()
        print(f"sheet {k:2d}: {iters} iterations", flush=True)
    costs, gains = torch.stack(costs).cpu(), torch.stack(gains).cpu()
    print(f"transport cost {costs.mean():.4f}  colour gained {gains.mean():+.4f}")
    print(f"{(time.perf_counter() - begin) / args.sheets:.2f} s per sheet")


if __name__ == "__main__":
    main()
