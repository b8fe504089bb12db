"""Fits the one-dimensional heat equation with a physics-informed network."""
import argparse
import logging
import math

import torch
from torch import nn

log = logging.getLogger("pinn")


def exact(x, t, alpha):
    return torch.exp(-alpha * math.pi**2 * t) * torch.sin(math.pi * x)


class Fourier(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("freq", torch.randn(2, features))

    def forward(self, xt):
        phase = xt @ self.freq
        return torch.cat([phase.sin(), phase.cos()], dim=-1)


class Field(nn.Module):
    """u(x, t), with the residual terms switched on gradually."""

    def __init__(self, width=48, depth=1, ramp=40):
        super().__init__()
        self.features = Fourier(width // 2)
        layers = []
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Linear(width, 1)
        self.ramp = ramp
        self.seen = 0

    def forward(self, xt):
        h = self.features(xt)
        mix = 1.0
        if self.training:
            self.seen += 1
            mix = min(1.0, self.seen / self.ramp)
        return self.head(h + mix * self.trunk(h))


class Sampler:
    """Collocation points, boundary points and initial points, of the same count every time."""

    def __init__(self, points, alpha, seed):
        self.points = points
        self.alpha = alpha
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            xt = torch.rand(self.points, 2, generator=self.generator)
            edge = torch.rand(self.points // 4, 2, generator=self.generator)
            edge[:, 0] = (edge[:, 0] > 0.5).float()
            start = torch.rand(self.points // 4, 2, generator=self.generator)
            start[:, 1] = 0
            batch = torch.cat([xt, edge, start])
            yield batch, exact(batch[:, :1], batch[:, 1:], self.alpha)


def evaluate(net, alpha):
    net.eval()
    with torch.no_grad():
        grid = torch.cartesian_prod(torch.linspace(0, 1, 16), torch.linspace(0, 1, 24))
        error = (net(grid) - exact(grid[:, :1], grid[:, 1:], alpha)).abs().max()
    net.train()
    return error.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--points", type=int, default=256)
    parser.add_argument("--alpha", type=float, default=0.3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)

    net = Field()
    compiled = torch.compile(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step, (xt, u) in zip(range(args.steps), Sampler(args.points, args.alpha, 1)):
        loss = nn.functional.mse_loss(compiled(xt), u)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            log.info("step %d loss %.5f", step, loss.item())
    log.info("largest error %.4f", evaluate(net, args.alpha))


if __name__ == "__main__":
    main()
