"""VAE on synthetic Raman spectra; written with small callbacks around a plain loop."""
import torch
from torch import nn
import torch.nn.functional as F
import torch_xla

BINS, LATENT, BATCH = 128, 8, 64


class SpectraVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(BINS, 96), nn.ELU())
        self.mu = nn.Linear(96, LATENT)
        self.logvar = nn.Linear(96, LATENT)
        self.dec = nn.Sequential(nn.Linear(LATENT, 96), nn.ELU(), nn.Linear(96, BINS))

    def forward(self, x):
        h = self.enc(x)
        mu, lv = self.mu(h), self.logvar(h).clamp(-6, 4)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        return self.dec(z), mu, lv


class Callback:
    def on_batch_end(self, state): ...
    def on_epoch_end(self, state): ...


class Barrier(Callback):
    """Sends the lazily recorded work to the device."""

    def on_epoch_end(self, state):
        torch_xla.sync()


class KlWarmup(Callback):
    def __init__(self, over):
        self.over = over

    def on_batch_end(self, state):
        state["beta"].add_(1.0 / self.over).clamp_(max=1.0)


class Journal(Callback):
    def __init__(self):
        self.rows = []

    def on_epoch_end(self, state):
        self.rows.append(state["sum"].item() / state["batches"])
        print(f"epoch {state['epoch']:2d} elbo {-self.rows[-1]:.3f}")


class SpectraSet:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        axis = torch.linspace(0, 1, BINS)
        centre = torch.rand(n, 3, 1, generator=g)
        width = 0.01 + 0.04 * torch.rand(n, 3, 1, generator=g)
        height = torch.rand(n, 3, 1, generator=g)
        self.x = (height * torch.exp(-((axis - centre) / width) ** 2)).sum(1)
        self.x += 0.02 * torch.randn(self.x.shape, generator=g)
        self.g = g

    def batches(self, size):
        perm = torch.randperm(len(self.x), generator=self.g)
        for i in range(0, len(perm) - size + 1, size):
            yield self.x[perm[i:i + size]]


def fit(model, data, device, epochs, callbacks):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    state = {"beta": torch.zeros((), device=device)}
    for epoch in range(epochs):
        state.update(epoch=epoch, batches=0, sum=torch.zeros((), device=device))
        for x in data.batches(BATCH):
            x = x.to(device)
            recon, mu, lv = model(x)
            rec = F.mse_loss(recon, x, reduction="none").sum(1).mean()
            kl = -0.5 * (1 + lv - mu.square() - lv.exp()).sum(1).mean()
            loss = rec + 0.1 * state["beta"] * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            state["sum"] += loss.detach()
            state["batches"] += 1
            for cb in callbacks:
                cb.on_batch_end(state)
        for cb in callbacks:
            cb.on_epoch_end(state)
    return state


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = SpectraVAE().to(device)
    data = SpectraSet(BATCH * 10, seed=5)
    journal = Journal()
    fit(model, data, device, epochs=12, callbacks=[KlWarmup(80), Barrier(), journal])
    with torch.no_grad():
        z = torch.randn(4, LATENT).to(device)
        made = model.dec(z).cpu()
    print("sample peaks", made.argmax(1).tolist())


if __name__ == "__main__":
    main()
