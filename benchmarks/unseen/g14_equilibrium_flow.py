"""Deep-equilibrium surrogate for steady diffusion fields on a small grid."""
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Solver:
    max_iter: int = 6
    tol: float = 2e-2
    damping: float = 0.6

    def settled(self, new, old):
        gap = (new - old).norm() / (new.norm() + 1e-6)
        return bool(gap < self.tol)

    def run(self, fn, z):
        for _ in range(self.max_iter):
            nxt = self.damping * fn(z) + (1 - self.damping) * z
            if self.settled(nxt, z):
                return nxt
            z = nxt
        return z


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Conv2d(width, width, 3, padding=1)
        self.inject = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, z, src):
        return torch.tanh(0.5 * self.norm(self.mix(z)) + self.inject(src))


class FieldNet(nn.Module):
    def __init__(self, width=16, solver=None):
        super().__init__()
        self.cell = Cell(width)
        self.solver = solver or Solver()
        self.read = nn.Conv2d(width, 1, 1)
        self.width = width

    def forward(self, src):
        z = src.new_zeros(src.shape[0], self.width, src.shape[2], src.shape[3])
        z = self.solver.run(lambda s: self.cell(s, src), z)
        return self.read(z)


def reference(src, sweeps=60):
    """Jacobi sweeps, the slow truth."""
    k = torch.tensor([[0.0, 0.25, 0.0], [0.25, 0.0, 0.25], [0.0, 0.25, 0.0]]).view(1, 1, 3, 3)
    u = torch.zeros_like(src)
    for _ in range(sweeps):
        u = F.conv2d(u, k, padding=1) + 0.25 * src
    return u


class Snapshots:
    def __init__(self, folder, every):
        self.folder, self.every = folder, every
        os.makedirs(folder, exist_ok=True)

    def __call__(self, step, net):
        if step % self.every == 0:
            torch.save(net.state_dict(), os.path.join(self.folder, "last.pt"))


def main():
    torch.manual_seed(9)
    src = torch.randn(512, 1, 24, 24)
    src = F.avg_pool2d(src, 5, stride=1, padding=2) * 4
    ref = reference(src)
    net = FieldNet()
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    snap = Snapshots("/tmp/g14_snap", every=100)
    acc = torch.zeros(())
    for step in range(1, 201):
        i = torch.randint(0, 512, (16,))
        loss = F.mse_loss(model(src[i]), ref[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        acc += loss.detach()
        snap(step, net)
        if step % 50 == 0:
            print(f"step {step} mse {acc.item() / 50:.4f}")
            acc.zero_()


if __name__ == "__main__":
    main()
