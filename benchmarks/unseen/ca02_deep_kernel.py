"""Deep kernel learning: a Gaussian process on the features of a small network."""
import copy
import dataclasses
import math

import torch_xla
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm


@dataclasses.dataclass
class Config:
    points: int = 96
    batch: int = 48
    dim: int = 8
    feature: int = 4
    steps: int = 200
    lr: float = 5e-3
    report: int = 50


class Extractor(nn.Sequential):
    def __init__(self, cfg):
        super().__init__(
            nn.Linear(cfg.dim, 64), nn.Tanh(),
            nn.Linear(64, 64), nn.Tanh(),
            nn.Linear(64, cfg.feature))


class DeepKernelGP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.extract = Extractor(cfg)
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.log_length = nn.Parameter(torch.zeros(cfg.feature))
        self.log_noise = nn.Parameter(torch.tensor(-2.0))
        self.register_buffer("eye", torch.eye(cfg.batch))

    def kernel(self, a, b):
        a = a / self.log_length.exp()
        b = b / self.log_length.exp()
        d2 = (a * a).sum(-1)[:, None] + (b * b).sum(-1)[None, :] - 2 * a @ b.T
        return self.log_scale.exp() * torch.exp(-0.5 * d2.clamp_min(0))

    def negative_mll(self, x, y):
        z = self.extract(x)
        cov = self.kernel(z, z) + (self.log_noise.exp() + 1e-3) * self.eye
        chol = torch.linalg.cholesky(cov)
        white = torch.linalg.solve_triangular(chol, y[:, None], upper=False)
        n = y.shape[0]
        logdet = chol.diagonal().log().sum()
        return (0.5 * (white ** 2).sum() + logdet + 0.5 * n * math.log(2 * math.pi)) / n


def synthetic(cfg):
    g = torch.Generator().manual_seed(11)
    x = torch.randn(cfg.points * 20, cfg.dim, generator=g)
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * torch.randn(len(x), generator=g)
    return x, y


def batches(x, y, cfg):
    g = torch.Generator().manual_seed(5)
    while True:
        idx = torch.randint(0, len(x), (cfg.batch,), generator=g)
        yield x[idx], y[idx]


class Ema:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)


def main():
    cfg = Config()
    torch.manual_seed(0)
    device = torch_xla.device()
    model = DeepKernelGP(cfg).to(device)
    ema = Ema(model)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    stream = batches(*synthetic(cfg), cfg)
    total = torch.zeros((), device=device)
    for step in range(1, cfg.steps + 1):
        x, y = next(stream)
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        loss = model.negative_mll(x, y)
        loss.backward()
        opt.step()
        ema.update(model)
        total += loss.detach()
        torch_xla.sync()
        if step % cfg.report == 0:
            print(f"step {step:4d}  nmll {total.item() / cfg.report:.4f}")
            total.zero_()
    with torch.no_grad():
        x, y = next(stream)
        print("ema nmll", round(ema.shadow.negative_mll(x.to(device), y.to(device)).item(), 4))


if __name__ == "__main__":
    main()
