"""Vibrations of a bearing as a linear system in a learned space (a Koopman autoencoder)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm


class Vibration(Dataset):
    """Snippets of a nonlinear oscillator of two masses, driven by random kicks."""

    def __init__(self, n, delay, horizon, seed):
        g = torch.Generator().manual_seed(seed)
        total = n + delay + horizon
        x = torch.zeros(total, 2)
        v = torch.zeros(2)
        pos = torch.tensor([1.0, -0.5])
        kicks = 0.05 * torch.randn(total, 2, generator=g)
        for i in range(total):
            acc = -pos - 0.3 * pos ** 3 + 0.5 * pos.flip(0) - 0.02 * v
            v = v + 0.1 * acc + kicks[i]
            pos = pos + 0.1 * v
            x[i] = pos
        self.x, self.delay, self.horizon, self.n = x, delay, horizon, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.x[i:i + self.delay].flatten(), self.x[i + self.delay:i + self.delay + self.horizon]


class Koopman(nn.Module):
    def __init__(self, delay, latent=12, width=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(2 * delay, width), nn.Tanh(), nn.Linear(width, latent))
        self.decode = nn.Sequential(nn.Linear(latent, width), nn.Tanh(), nn.Linear(width, 2))
        self.K = nn.Parameter(torch.eye(latent) + 0.05 * torch.randn(latent, latent))

    def rollout(self, history, horizon):
        z = self.encode(history)
        out = []
        for _ in range(horizon):
            z = z @ self.K
            out.append(self.decode(z))
            torch_xla.sync()  # keeps the graphs of long horizons small
        return torch.stack(out, 1)

    def spectral_radius(self):
        return torch.linalg.eigvals(self.K).abs().max()


class Trainer:
    def __init__(self, model, device, horizon, lr=2e-3, stability=0.1):
        self.model, self.device, self.horizon = model, device, horizon
        self.stability = stability
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)
        discount = 0.97 ** torch.arange(horizon, dtype=torch.float32)
        self.discount = (discount / discount.sum()).to(device)

    def loss(self, history, future):
        pred = self.model.rollout(history, self.horizon)
        err = ((pred - future) ** 2).mean((0, 2))
        unstable = F.relu(self.model.spectral_radius() - 1.0)
        return (err * self.discount).sum() + self.stability * unstable

    def step(self, history, future):
        self.opt.zero_grad()
        loss = self.loss(history.to(self.device), future.to(self.device))
        loss.backward()
        self.opt.step()
        torch_xla.sync()
        return loss.detach()

    def epoch(self, loader):
        total = torch.zeros((), device=self.device)
        for history, future in loader:
            total += self.step(history, future)
            torch_xla.sync()
        return total.item() / len(loader)

    @torch.no_grad()
    def skill(self, loader):
        err = base = 0
        for history, future in loader:
            future = future.to(self.device)
            pred = self.model.rollout(history.to(self.device), self.horizon)
            err = err + ((pred - future) ** 2).sum()
            base = base + (future ** 2).sum()
            torch_xla.sync()
        return 1 - (err / base).item()


def main():
    torch.manual_seed(7)
    device = torch_xla.device()
    delay, horizon = 8, 12
    train = DataLoader(Vibration(800, delay, horizon, 1), batch_size=32, shuffle=True, drop_last=True)
    test = DataLoader(Vibration(128, delay, horizon, 2), batch_size=32)
    model = Koopman(delay).to(device)
    trainer = Trainer(model, device, horizon)
    for epoch in range(20):
        loss = trainer.epoch(train)
        if epoch % 5 == 4:
            print(f"epoch {epoch}  loss {loss:.4f}", flush=True)
    print(f"skill {trainer.skill(test):.3f}, radius {model.spectral_radius().item():.3f}")


if __name__ == "__main__":
    main()
