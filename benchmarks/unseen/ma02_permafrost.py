"""Calibrate a 1-D permafrost temperature model at several boreholes by gradient descent through the solver.

Each borehole has a logger that worked for its own number of days. Soil thermal properties per layer are fitted so that
the simulated temperatures at the sensor depths follow the logger. Everything runs on the XLA device.
"""
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

NODES, DZ, DAY = 24, 0.5, 86400.0
SENSORS = [1, 3, 6, 10, 16]
ITERATIONS = 40


class Ground(nn.Module):
    """Heat conduction with freezing: the apparent heat capacity rises around 0 degrees."""

    def __init__(self, layers=4):
        super().__init__()
        self.log_k = nn.Parameter(torch.full((layers,), 0.4))
        self.log_c = nn.Parameter(torch.full((layers,), 0.6))
        self.latent = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("layer_of_node", torch.arange(NODES) * layers // NODES)

    def profile(self):
        k = torch.exp(self.log_k)[self.layer_of_node]
        c = 1e6 * torch.exp(self.log_c)[self.layer_of_node]
        return k, c

    def day(self, temperature, surface, k, c):
        """One explicit step: stable while k / c * DAY / DZ**2 stays below a half."""
        full = torch.cat([surface.reshape(1), temperature, temperature[-1:]])
        k_face = torch.cat([k[:1], 0.5 * (k[1:] + k[:-1]), k[-1:]])
        flux = -k_face * (full[1:] - full[:-1]) / DZ
        capacity = c + 2e7 * torch.exp(self.latent) * torch.exp(-(temperature / 0.7) ** 2)
        return temperature - DAY * (flux[1:] - flux[:-1]) / (DZ * capacity)

    def forward(self, start, air):
        k, c = self.profile()
        temperature, history = start, []
        for surface in air.unbind(0):
            temperature = self.day(temperature, surface, k, c)
            history.append(temperature[SENSORS])
        return torch.stack(history)


def synthetic_borehole(rng, days):
    """Air temperature and a logger record (a smooth, damped and delayed wave with noise)."""
    t = np.arange(days)
    mean, swing = rng.uniform(-6, -2), rng.uniform(9, 14)
    air = mean + swing * np.sin(2 * np.pi * t / 40 + rng.uniform(0, 6)) + rng.normal(0, 1.2, days)
    depth = DZ * (1 + np.array(SENSORS))
    phase = np.convolve(air, np.ones(5) / 5, mode="same")
    record = mean + (phase[:, None] - mean) * np.exp(-depth / 2.2)[None] + rng.normal(0, 0.1, (days, len(SENSORS)))
    start = np.full(NODES, mean)
    return start.astype(np.float32), air.astype(np.float32), record.astype(np.float32)


class Calibration:
    def __init__(self, name, start, air, record, device):
        self.name = name
        self.start = torch.from_numpy(start).to(device)
        self.air = torch.from_numpy(air).to(device)
        self.record = torch.from_numpy(record).to(device)
        self.model = Ground().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)

    def misfit(self):
        simulated = self.model(self.start, self.air)
        spread = self.record.std(0, keepdim=True) + 0.1
        return (((simulated - self.record) / spread) ** 2).mean()

    def fit(self):
        losses = []
        for _ in range(ITERATIONS):
            self.optimizer.zero_grad()
            loss = self.misfit()
            loss.backward()
            xm.optimizer_step(self.optimizer)
            losses.append(loss.detach())
            torch_xla.sync()
        return losses[0].item(), losses[-1].item()


def main():
    rng = np.random.default_rng(11)
    device = torch_xla.device()
    sites = ["Bayelva", "Kytalyk", "Samoylov", "Toolik", "Zackenberg", "Abisko"]
    days = [26, 22, 28, 19, 25, 21]
    for name, n in zip(sites, days):
        job = Calibration(name, *synthetic_borehole(rng, n), device)
        first, last = job.fit()
        k = torch.exp(job.model.log_k.detach()).cpu().numpy()
        print(f"{name:11s} {n:3d} days  misfit {first:7.3f} -> {last:7.3f}   k = {np.round(k, 2)}")


if __name__ == "__main__":
    main()
