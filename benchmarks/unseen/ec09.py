"""N-BEATS style forecaster of hourly load curves; the optimizer step is compiled as well."""
import math
import time

import torch
import torch.nn as nn

LOOKBACK, HORIZON = 96, 24


def load_curves(n_series=40, hours=24 * 120, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours).float()
    day = torch.rand(n_series, 1, generator=g) * 6.28
    week = torch.rand(n_series, 1, generator=g) * 6.28
    level = 1 + torch.rand(n_series, 1, generator=g)
    ar = torch.zeros(n_series, hours)
    noise = 0.08 * torch.randn(n_series, hours, generator=g)
    for i in range(1, hours):
        ar[:, i] = 0.9 * ar[:, i - 1] + noise[:, i]
    curve = level + 0.6 * torch.sin(6.28 * t / 24 + day) + 0.25 * torch.sin(6.28 * t / 168 + week)
    return curve + 0.2 * torch.sin(6.28 * t / 12 + 2 * day) + ar


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(LOOKBACK, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.back = nn.Linear(width, LOOKBACK)
        self.fore = nn.Linear(width, HORIZON)

    def forward(self, x):
        h = self.body(x)
        return self.back(h), self.fore(h)


class NBeats(nn.Module):
    def __init__(self, blocks=3, width=96):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        rest, out = x - mean, 0.0
        for block in self.blocks:
            back, fore = block(rest)
            rest, out = rest - back, out + fore
        return out + mean


class Windows:
    def __init__(self, data, batch, seed=0):
        self.data, self.batch = data, batch
        self.g = torch.Generator().manual_seed(seed)

    def draw(self):
        s = torch.randint(len(self.data), (self.batch, 1), generator=self.g)
        o = torch.randint(self.data.shape[1] - LOOKBACK - HORIZON, (self.batch, 1), generator=self.g)
        w = self.data[s, o + torch.arange(LOOKBACK + HORIZON)]
        return w[:, :LOOKBACK], w[:, LOOKBACK:]


def warmup_cosine(step, warmup=50, total=600):
    if step < warmup:
        return (step + 1) / warmup
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


@torch.no_grad()
def smape(model, data):
    x, y = data[:, -LOOKBACK - HORIZON:-HORIZON], data[:, -HORIZON:]
    p = model(x)
    return (200 * (p - y).abs() / (p.abs() + y.abs())).mean().item()


def main(steps=600, batch=128):
    torch.manual_seed(0)
    data = load_curves()
    train = Windows(data[:, :-HORIZON], batch)
    model = NBeats()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, warmup_cosine)

    @torch.compile(fullgraph=False)
    def update():
        opt.step()

    t0, running = time.time(), torch.zeros(())
    for step in range(1, steps + 1):
        x, y = train.draw()
        loss = (model(x) - y).abs().mean()
        opt.zero_grad()
        loss.backward()
        update()
        sched.step()
        running += loss.detach()
        if step % 150 == 0:
            print(f"step {step} mae {running.item() / 150:.4f} smape {smape(model, data):.2f}% "
                  f"lr {sched.get_last_lr()[0]:.2e} {time.time() - t0:.1f}s", flush=True)
            running.zero_()


if __name__ == "__main__":
    main()
