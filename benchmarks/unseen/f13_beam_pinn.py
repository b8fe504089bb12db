"""Physics-informed network for a bending beam: residual by autograd, gradient accumulation, EMA of the weights."""
import copy
import math
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm


class Beam(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.a = nn.Linear(1, width)
        self.b = nn.Linear(width, width)
        self.c = nn.Linear(width, 1)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


class Ema:
    def __init__(self, model, decay=0.99):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)


def residual(model, x):
    """u'' = -pi^2 sin(pi x), clamped at both ends."""
    x = x.requires_grad_()
    u = model(x)
    du, = torch.autograd.grad(u.sum(), x, create_graph=True)
    ddu, = torch.autograd.grad(du.sum(), x, create_graph=True)
    return (ddu + math.pi ** 2 * torch.sin(math.pi * x)).square().mean()


class Run:
    accumulate = 4
    updates = 60
    points = 256
    report_every = 120      # micro steps

    def __init__(self):
        self.device = xm.xla_device()
        self.model = Beam().to(self.device)
        self.ema = Ema(self.model)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, self.updates)
        self.ends = torch.tensor([[0.0], [1.0]]).to(self.device)
        self.gen = torch.Generator().manual_seed(0)
        self.grid = torch.linspace(0, 1, 101)[:, None].to(self.device)

    def micro(self):
        x = torch.rand(self.points, 1, generator=self.gen).to(self.device)
        loss = residual(self.model, x) + 50 * self.model(self.ends).square().mean()
        (loss / self.accumulate).backward()
        return loss.detach()

    def update(self):
        self.opt.step()
        self.sched.step()
        self.opt.zero_grad(set_to_none=False)
        self.ema.update(self.model)

    @torch.no_grad()
    def error(self):
        truth = torch.sin(math.pi * self.grid)
        return (self.ema.shadow(self.grid) - truth).abs().max().item()

    def go(self):
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p)
        total = self.accumulate * self.updates
        for k in range(1, total + 1):
            loss = self.micro()
            if k % self.accumulate == 0:
                self.update()
            torch_xla.sync()
            if k % self.report_every == 0:
                print(f"micro {k} residual {loss.item():.3f}")
        print(f"largest error of the averaged net: {self.error():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Run().go()
