"""Monitoring of a bridge: strain, load class and crack position from accelerometers, with tasks weighed by how they come along."""
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F
import torch_xla

SENSORS, SAMPLES, LOADS = 6, 48, 4
TASKS = ("strain", "load", "crack")


@dataclass
class Settings:
    batch: int = 48
    steps: int = 48
    report: int = 24
    note_every: int = 6
    lr: float = 1e-2
    seed: int = 21


class Bridge:
    """Responses of a beam on two supports to a lorry of one of four classes; a crack lowers the modes."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.t = torch.linspace(0, 1, SAMPLES)
        self.x = torch.linspace(0.1, 0.9, SENSORS)

    def batch(self, n):
        load = torch.randint(0, LOADS, (n,), generator=self.g)
        crack = torch.rand(n, generator=self.g)
        speed = 0.8 + 0.4 * torch.rand(n, 1, 1, generator=self.g)
        signal = torch.zeros(n, SENSORS, SAMPLES)
        for mode in (1, 2, 3):
            shape = torch.sin(mode * 3.1416 * self.x).view(1, SENSORS, 1)
            loss = 1 - 0.12 * torch.sin(mode * 3.1416 * crack).square()
            signal += shape * torch.sin(6.28 * mode * speed * loss.view(n, 1, 1) * self.t * 2) / mode
        signal = signal * (1 + 0.3 * load.view(n, 1, 1)) + 0.1 * torch.randn(signal.shape, generator=self.g)
        strain = signal.abs().amax((1, 2))
        return signal, strain, load, crack


class MultiTask(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(SENSORS * SAMPLES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.strain, self.load, self.crack = nn.Linear(width, 1), nn.Linear(width, LOADS), nn.Linear(width, 1)

    def forward(self, signal):
        h = self.body(signal)
        return self.strain(h).squeeze(1), self.load(h), self.crack(h).sigmoid().squeeze(1)


class ProgressWeights:
    """A task whose loss has come down less than the others' since the start gets more weight."""

    def __init__(self, tasks, sharpness=2.0):
        self.history = {name: [] for name in tasks}
        self.sharpness = sharpness

    def record(self, losses):
        for name, value in losses.items():
            self.history[name].append(value.detach())

    def average(self, name):
        return torch.stack(self.history[name]).mean()

    def weights(self, losses):
        if not self.history["strain"]:
            return torch.ones(len(losses), device=next(iter(losses.values())).device)
        ratios = torch.stack([losses[n].detach() / self.average(n) for n in losses])
        return len(losses) * (self.sharpness * ratios).softmax(0)


class Monitor:
    def __init__(self, settings):
        self.settings = settings
        self.device = torch_xla.device()
        self.net = MultiTask().to(self.device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=settings.lr, momentum=0.9)
        self.balance = ProgressWeights(TASKS)
        self.count = 0

    def losses(self, signal, strain, load, crack):
        s, l, c = self.net(signal)
        return {"strain": F.smooth_l1_loss(s, strain), "load": F.cross_entropy(l, load), "crack": F.mse_loss(c, crack) * 10}

    def step(self, batch):
        parts = self.losses(*(t.to(self.device) for t in batch))
        weights = self.balance.weights(parts)
        loss = (weights * torch.stack(list(parts.values()))).sum()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if self.count % self.settings.note_every == 0:
            self.balance.record(parts)
        self.count += 1
        torch_xla.sync()
        return weights

    def report(self, step, weights):
        recent = [self.balance.history[n][-1] for n in TASKS]
        values = torch.stack(recent + list(weights)).tolist()
        cells = [f"{n} {values[i]:.3f} (x{values[i + 3]:.2f})" for i, n in enumerate(TASKS)]
        print(f"{step:4d} " + "  ".join(cells))


def main():
    settings = Settings()
    torch.manual_seed(settings.seed)
    bridge, monitor = Bridge(settings.seed), Monitor(settings)
    for step in range(1, settings.steps + 1):
        weights = monitor.step(bridge.batch(settings.batch))
        if step % settings.report == 0:
            monitor.report(step, weights)


if __name__ == "__main__":
    main()
