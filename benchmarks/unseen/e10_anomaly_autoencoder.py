"""An autoencoder that flags unusual payments; the model is compiled with inductor."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("payments")


def make_payments(n, features, seed):
    gen = torch.Generator().manual_seed(seed)
    mixing = torch.randn(4, features, generator=torch.Generator().manual_seed(99))
    x = torch.randn(n, 4, generator=gen) @ mixing + 0.1 * torch.randn(n, features, generator=gen)
    odd = torch.rand(n, generator=gen) < 0.03
    x[odd] += 3 * torch.randn(int(odd.sum()), features, generator=gen)
    return x


class RobustScaler(nn.Module):
    """Centres and clips by running statistics; extreme batches leave the statistics as they are."""

    def __init__(self, features, momentum=0.05, limit=6.0):
        super().__init__()
        self.momentum, self.limit = momentum, limit
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("var", torch.ones(features))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0)
            if var.max() < self.limit**2 * self.var.max():
                self.mean = torch.lerp(self.mean, mean.detach(), self.momentum)
                self.var = torch.lerp(self.var, var.detach(), self.momentum)
        return ((x - self.mean) / (self.var + 1e-5).sqrt()).clamp(-self.limit, self.limit)


class SparseCode(nn.Module):
    """Keeps the share of units that fire near a target by shifting a threshold."""

    def __init__(self, inp, out, target=0.2):
        super().__init__()
        self.linear = nn.Linear(inp, out)
        self.target = target
        self.register_buffer("threshold", torch.zeros(out))
        self.history = []

    def forward(self, x):
        code = F.relu(self.linear(x) - self.threshold)
        if self.training:
            active = (code > 0).float().mean(0)
            self.history.append(active.mean().item())
            self.threshold = self.threshold + 0.01 * (active - self.target)
        return code


class PaymentModel(nn.Module):
    def __init__(self, features, hidden=48, code=16):
        super().__init__()
        self.scaler = RobustScaler(features)
        self.encoder = nn.Sequential(nn.Linear(features, hidden), nn.SiLU())
        self.code = SparseCode(hidden, code)
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.SiLU(), nn.Linear(hidden, features))

    def forward(self, x):
        scaled = self.scaler(x)
        rebuilt = self.decoder(self.code(self.encoder(scaled)))
        return (rebuilt - scaled).square().mean(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1280)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)

    loader = DataLoader(TensorDataset(make_payments(args.rows, args.features, 0)), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = PaymentModel(args.features)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        model.train()
        for (x,) in loader:
            loss = compiled(x).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        active = sum(model.code.history[-len(loader):]) / len(loader)
        log.info("epoch %d: loss %.4f, %.0f%% of units active", epoch, loss.item(), 100 * active)

    model.eval()
    with torch.no_grad():
        scores = compiled(make_payments(args.batch_size, args.features, 1))
    log.info("highest scores %s", scores.topk(3).values.tolist())


if __name__ == "__main__":
    main()
