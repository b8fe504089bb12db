import gc
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS, WINDOW = 4, 16


def pump_recordings(n, gen):
    t = torch.arange(WINDOW) / WINDOW
    speed = 1 + 2 * torch.rand(n, 1, generator=gen)
    phase = torch.rand(n, 1, generator=gen) * 6.28
    base = torch.sin(6.28 * speed * t + phase)
    x = torch.stack([base, base.roll(2, 1), base ** 2, base.abs()], 1)
    x = x + 0.05 * torch.randn(x.shape, generator=gen)
    faulty = torch.rand(n, generator=gen) < 0.1
    x[faulty, 1] = x[faulty, 1].flip(-1)
    return x.flatten(1), faulty


class Encoder(nn.Module):
    def __init__(self, width, latent):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CHANNELS * WINDOW, width), nn.SiLU(),
                                  nn.Linear(width, width), nn.SiLU())
        self.mean, self.logvar = nn.Linear(width, latent), nn.Linear(width, latent)

    def forward(self, x):
        h = self.body(x)
        return self.mean(h), self.logvar(h).clamp(-8, 8)


class VAE(nn.Module):
    def __init__(self, width=64, latent=6):
        super().__init__()
        self.encoder = Encoder(width, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                     nn.Linear(width, CHANNELS * WINDOW))

    def forward(self, x, beta):
        mean, logvar = self.encoder(x)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        error = (self.decoder(z) - x).square().sum(1)
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(1)
        return (error + beta * kl).mean(), error


def isolate(seed):
    """Every fold starts from the same state, whatever ran before it."""
    random.seed(seed)
    torch.manual_seed(seed)
    torch._dynamo.reset()
    gc.collect()


def folds(n, k, gen):
    order = torch.randperm(n, generator=gen)
    parts = order.chunk(k)
    for i in range(k):
        yield torch.cat([p for j, p in enumerate(parts) if j != i]), parts[i]


def batches(index, size, gen=None):
    if gen is not None:
        index = index[torch.randperm(len(index), generator=gen)]
    for i in range(0, len(index) - size + 1, size):
        yield index[i:i + size]


class FoldRun:
    def __init__(self, seed, epochs, batch):
        isolate(seed)
        self.model = VAE()
        self.net = torch.compile(self.model, backend="aot_eager")
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, epochs)
        self.epochs, self.batch = epochs, batch
        self.gen = torch.Generator().manual_seed(seed)

    def train(self, x, index):
        beta = torch.zeros(())
        for epoch in range(self.epochs):
            beta.fill_(min(1.0, epoch / 5) * 0.2)
            for rows in batches(index, self.batch, self.gen):
                loss, _ = self.net(x[rows], beta)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            self.sched.step()
        return loss.item()

    @torch.no_grad()
    def score(self, x, index):
        self.model.eval()
        beta = torch.zeros(())
        return torch.cat([self.net(x[rows], beta)[1] for rows in batches(index, self.batch)])


def detection_rate(score, faulty):
    faulty = faulty[:len(score)]
    cut = score.sort(descending=True).values[int(0.1 * len(score))]
    return ((score >= cut) & faulty).sum().item() / max(1, int(faulty.sum()))


def main(k=8, epochs=10, batch=32):
    gen = torch.Generator().manual_seed(21)
    x, faulty = pump_recordings(1024, gen)
    rates = []
    for i, (fit, held) in enumerate(folds(len(x), k, gen)):
        began = time.time()
        run = FoldRun(seed=i, epochs=epochs, batch=batch)
        loss = run.train(x, fit[~faulty[fit]])
        rates.append(detection_rate(run.score(x, held), faulty[held]))
        print(f"fold {i} loss {loss:.3f} found {rates[-1]:.2f} {time.time() - began:.1f}s", flush=True)
    print(f"mean {sum(rates) / k:.3f}")


if __name__ == "__main__":
    main()
