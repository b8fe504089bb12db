"""Denoising diffusion of handwritten-like pen strokes (32 points in the plane), with averaged weights for sampling."""
import copy
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)
POINTS, STEPS_T = 32, 60


def strokes(count):
    """Lissajous curves of a few frequencies, rotated and bent: smooth closed pen strokes."""
    s = torch.linspace(0, 2 * math.pi, POINTS)
    kind = torch.randint(0, 4, (count,))
    fx = torch.tensor([1.0, 1.0, 2.0, 3.0])[kind][:, None]
    fy = torch.tensor([1.0, 2.0, 1.0, 2.0])[kind][:, None]
    phase = torch.rand(count, 1) * math.pi
    x, y = torch.sin(fx * s + phase), torch.sin(fy * s)
    turn = 0.3 * torch.randn(count, 1)
    x, y = turn.cos() * x - turn.sin() * y, turn.sin() * x + turn.cos() * y
    return torch.stack([x, y], dim=-1) + 0.02 * torch.randn(count, POINTS, 2), kind


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.cond = nn.Linear(dim, dim)
        self.inner = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        nn.init.zeros_(self.out.weight)

    def forward(self, x, c):
        return x + self.out(F.silu(self.inner(self.norm(x) + self.cond(c))))


class Denoiser(nn.Module):
    def __init__(self, dim=96, depth=8):
        super().__init__()
        self.read = nn.Linear(2 * POINTS, dim)
        self.time = nn.Embedding(STEPS_T, dim)
        self.label = nn.Embedding(4, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.write = nn.Linear(dim, 2 * POINTS)

    def forward(self, x, t, kind):
        h, c = self.read(x.flatten(1)), self.time(t) + self.label(kind)
        for block in self.blocks:
            h = block(h, c)
        return self.write(h).view_as(x)


class WeightAverage:
    """Exponential moving average of a model's weights."""

    def __init__(self, model, decay=0.995):
        self.decay = decay
        self.model = copy.deepcopy(model).eval()

    def update(self, model):
        averaged = copy.deepcopy(self.model.state_dict())
        for name, value in model.state_dict().items():
            averaged[name] = self.decay * averaged[name] + (1 - self.decay) * value
        self.model.load_state_dict(averaged)


class Noise:
    def __init__(self):
        self.beta = torch.linspace(1e-3, 0.16, STEPS_T)
        self.alpha_bar = torch.cumprod(1 - self.beta, 0)

    def corrupt(self, x, t):
        a = self.alpha_bar[t].view(-1, 1, 1)
        eps = torch.randn_like(x)
        return a.sqrt() * x + (1 - a).sqrt() * eps, eps

    @torch.no_grad()
    def sample(self, net, kind):
        x = torch.randn(len(kind), POINTS, 2)
        for i in reversed(range(STEPS_T)):
            t = torch.full((len(kind),), i)
            eps = net(x, t, kind)
            x = (x - self.beta[i] / (1 - self.alpha_bar[i]).sqrt() * eps) / (1 - self.beta[i]).sqrt()
            if i:
                x = x + self.beta[i].sqrt() * torch.randn_like(x)
        return x


def nearest_distance(samples, reference):
    return torch.cdist(samples.flatten(1), reference.flatten(1)).min(dim=1).values.mean().item()


def main(epochs=6, steps=350, batch=128):
    net, noise = Denoiser(), Noise()
    data, kinds = strokes(8000)
    average = WeightAverage(net)
    predict = torch.compile(net)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        t0, running = time.perf_counter(), torch.zeros(())
        for _ in range(steps):
            pick = torch.randint(0, len(data), (batch,))
            x, kind, t = data[pick], kinds[pick], torch.randint(0, STEPS_T, (batch,))
            noisy, eps = noise.corrupt(x, t)
            loss = F.mse_loss(predict(noisy, t, kind), eps)
            opt.zero_grad()
            loss.backward()
            opt.step()
            average.update(net)
            running += loss.detach()
        made = noise.sample(average.model, torch.arange(128) % 4)
        print(f"epoch {epoch}: loss {(running / steps).item():.4f}  distance to the data "
              f"{nearest_distance(made, data):.3f}  {time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
