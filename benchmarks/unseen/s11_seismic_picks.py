"""P-wave arrival picks on seismograms of three standard lengths, with a compiled 1-d network."""
import dataclasses
import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

STANDARD_LENGTHS = (64, 96, 128)


@dataclasses.dataclass(frozen=True)
class Config:
    records: int = 1920
    batch: int = 24
    epochs: int = 5
    width: int = 16
    lr: float = 3e-3
    log_every: int = 50
    use_envelope: bool = True
    seed: int = 23


class Seismograms(Dataset):
    """Noise, then a decaying wave train from the pick on. Records are zero-filled to the next standard length."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(44, 129, (), generator=g))
            standard = next(s for s in STANDARD_LENGTHS if s >= length)
            pick = int(torch.randint(8, length - 20, (), generator=g))
            t = torch.arange(length - pick, dtype=torch.float32)
            trace = 0.25 * torch.randn(3, standard, generator=g)
            wave = torch.exp(-t / 25) * torch.sin(0.7 * t + torch.rand(3, 1, generator=g) * 6.28)
            trace[:, pick:length] += wave
            trace[:, length:] = 0
            self.items.append((trace, pick))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class BucketBatches(Sampler):
    def __init__(self, data, batch, seed):
        lengths = [trace.shape[1] for trace, _ in data.items]
        self.buckets = [[i for i, n in enumerate(lengths) if n == s] for s in STANDARD_LENGTHS]
        self.batch = batch
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self):
        batches = []
        for bucket in self.buckets:
            order = [bucket[i] for i in torch.randperm(len(bucket), generator=self.generator).tolist()]
            full = len(order) // self.batch
            batches += [order[b * self.batch:(b + 1) * self.batch] for b in range(full)]
        for i in torch.randperm(len(batches), generator=self.generator).tolist():
            yield batches[i]

    def __len__(self):
        return sum(len(b) // self.batch for b in self.buckets)


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Picker(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.stem = nn.Conv1d(6 if cfg.use_envelope else 3, cfg.width, 7, padding=3)
        self.blocks = nn.ModuleList(Residual(cfg.width, d) for d in (1, 2, 4, 8))
        self.out = nn.Conv1d(cfg.width, 1, 1)

    def forward(self, x):
        if self.cfg.use_envelope:
            x = torch.cat([x, x.abs()], dim=1)
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.out(h).squeeze(1)


class AverageWeights:
    def __init__(self, model):
        self.shadow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model, decay=0.99):
        torch._foreach_lerp_(self.shadow, [p.detach() for p in model.parameters()], 1 - decay)


def loss_of(logits, picks):
    position = torch.arange(logits.shape[1], device=logits.device)
    soft = torch.exp(-0.5 * ((position - picks.unsqueeze(1)) / 1.5) ** 2)
    return -(soft / soft.sum(dim=1, keepdim=True) * logits.log_softmax(dim=1)).sum(dim=1).mean()


@torch.inference_mode()
def hit_rate(model, loader, tolerance=3):
    model.eval()
    hits, seen = torch.zeros(()), 0
    for traces, picks in loader:
        hits += ((model(traces).argmax(dim=1) - picks).abs() <= tolerance).sum()
        seen += len(picks)
    model.train()
    return hits.item() / seen


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train, val = Seismograms(cfg.records, cfg.seed), Seismograms(480, cfg.seed + 1)
    loader = DataLoader(train, batch_sampler=BucketBatches(train, cfg.batch, cfg.seed))
    val_loader = DataLoader(val, batch_sampler=BucketBatches(val, 48, cfg.seed))
    model = Picker(cfg)
    average = AverageWeights(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    fast = torch.compile(model, backend="aot_eager", dynamic=False)

    counter = itertools.count(1)
    recent = torch.zeros(())
    for epoch in range(cfg.epochs):
        began = time.perf_counter()
        for traces, picks in loader:
            loss = loss_of(fast(traces), picks)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            average.update(model)
            recent += loss.detach()
            step = next(counter)
            if step % cfg.log_every == 0:
                print(f"  step {step}: loss {recent.item() / cfg.log_every:.3f}")
                recent.zero_()
        print(f"epoch {epoch}: {len(loader)} batches in {time.perf_counter() - began:.2f} s, "
              f"hits within 3 samples {hit_rate(model, val_loader):.1%}")


if __name__ == "__main__":
    main()
