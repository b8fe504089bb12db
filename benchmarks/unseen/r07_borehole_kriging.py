"""Ore grades between boreholes: sparse GP whose inducing points are added greedily where it is least certain."""
import math
import time

import torch
import torch.nn as nn

import torch_xla
import torch_xla.core.xla_model as xm


def survey(n, seed):
    g = torch.Generator().manual_seed(seed)
    xyz = torch.rand(n, 3, generator=g) * 2 - 1
    vein = torch.exp(-8 * (xyz[:, 0] - 0.5 * torch.sin(3 * xyz[:, 1])) ** 2)
    grade = vein * (1 - 0.4 * xyz[:, 2]) + 0.05 * torch.randn(n, generator=g)
    return xyz, grade - grade.mean()


class Matern(nn.Module):
    """Matern 5/2 with one length per direction."""

    def __init__(self):
        super().__init__()
        self.log_length = nn.Parameter(torch.full((3,), math.log(0.5)))
        self.log_scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, a, b):
        s = self.log_length.exp()
        d2 = ((a[:, None] / s - b[None] / s) ** 2).sum(-1)
        r = torch.sqrt(5.0 * d2 + 1e-8)
        return self.log_scale.exp() * (1 + r + r * r / 3) * torch.exp(-r)

    def diag(self, a):
        return self.log_scale.exp().expand(a.shape[0])


class SparseGP(nn.Module):
    """The collapsed bound of Titsias (2009)."""

    def __init__(self, inducing, jitter=1e-4):
        super().__init__()
        self.kernel = Matern()
        self.log_noise = nn.Parameter(torch.tensor(-2.0))
        self.z = inducing
        self.jitter = jitter

    def factor(self, x):
        m = self.z.shape[0]
        eye = torch.eye(m, device=x.device)
        kzz = self.kernel(self.z, self.z) + self.jitter * eye
        kzx = self.kernel(self.z, x)
        L = torch.linalg.cholesky(kzz)
        A = torch.linalg.solve_triangular(L, kzx, upper=False) / self.log_noise.exp()
        B = A @ A.t() + eye
        LB = torch.linalg.cholesky(B)
        return L, A, LB

    def neg_bound(self, x, y):
        n, noise = len(x), self.log_noise.exp()
        L, A, LB = self.factor(x)
        c = torch.linalg.solve_triangular(LB, (A @ y)[:, None], upper=False)[:, 0] / noise
        fit = (y * y).sum() / noise ** 2 - (c * c).sum()
        logdet = 2 * LB.diagonal().log().sum() + 2 * n * self.log_noise
        trace = self.kernel.diag(x).sum() / noise ** 2 - (A * A).sum()
        return 0.5 * (fit + logdet + trace) / n

    @torch.no_grad()
    def predict(self, x, y, at):
        L, A, LB = self.factor(x)
        c = torch.linalg.solve_triangular(LB, (A @ y)[:, None], upper=False) / self.log_noise.exp()
        k = torch.linalg.solve_triangular(L, self.kernel(self.z, at), upper=False)
        t = torch.linalg.solve_triangular(LB, k, upper=False)
        mean = (t.t() @ c)[:, 0]
        var = self.kernel.diag(at) - (k * k).sum(0) + (t * t).sum(0)
        return mean, var

    @torch.no_grad()
    def grow(self, x, y, pool):
        """One more inducing point: the candidate of the largest variance."""
        _, var = self.predict(x, y, pool)
        self.z = torch.cat([self.z, pool[var.argmax()][None]])


def fit(gp, x, y, steps, lr):
    opt = torch.optim.Adam(gp.parameters(), lr=lr)
    for _ in range(steps):
        opt.zero_grad()
        bound = gp.neg_bound(x, y)
        bound.backward()
        opt.step()
        torch_xla.sync()
    return bound.detach()


def rmse(gp, x, y, xt, yt):
    mean, _ = gp.predict(x, y, xt)
    return (mean - yt).pow(2).mean().sqrt().item()


def main():
    torch.manual_seed(2)
    device = torch_xla.device()
    x, y = (t.to(device) for t in survey(320, 1))
    xt, yt = (t.to(device) for t in survey(128, 2))
    pool = (torch.rand(200, 3) * 2 - 1).to(device)
    gp = SparseGP((torch.rand(8, 3) * 2 - 1).to(device)).to(device)
    torch_xla.sync()

    begin = time.perf_counter()
    for stage in range(4):
        bound = fit(gp, x, y, steps=80, lr=0.02)
        gp.grow(x, y, pool)
        torch_xla.sync()
        print(f"stage {stage}: {gp.z.shape[0]} points, bound {bound.item():+.3f}, "
              f"{time.perf_counter() - begin:.1f} s", flush=True)
    print(f"rmse {rmse(gp, x, y, xt, yt):.4f}")


if __name__ == "__main__":
    main()
