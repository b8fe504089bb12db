"""Quantile forecasts of claim costs from a table of policies with a small column transformer, compiled."""
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

QUANTILES = (0.1, 0.5, 0.9)
CARDINALITIES = (12, 7, 30, 4)
NUMERIC = 6


class Policies:
    """Four categorical and six numeric columns; the cost is log-normal, its spread depends on the region."""

    def __init__(self, rows, seed):
        rng = np.random.default_rng(seed)
        world = np.random.default_rng(99)
        effects = [world.normal(0, 0.5, c) for c in CARDINALITIES]
        spread = 0.2 + 0.6 * world.random(CARDINALITIES[0])
        cats = np.stack([rng.integers(0, c, rows) for c in CARDINALITIES], axis=1)
        nums = rng.normal(size=(rows, NUMERIC)).astype(np.float32)
        mean = sum(e[cats[:, i]] for i, e in enumerate(effects)) + 0.4 * nums[:, 0] - 0.3 * nums[:, 1] * nums[:, 2]
        y = mean + spread[cats[:, 0]] * rng.normal(size=rows)
        self.cats = torch.from_numpy(cats)
        self.nums = torch.from_numpy(nums)
        self.y = torch.from_numpy(y.astype(np.float32))

    def batches(self, size, shuffle=False):
        """Takes whole batches out of the columns; what is left over is dropped, so that all have one shape."""
        order = torch.randperm(len(self.y)) if shuffle else torch.arange(len(self.y))
        for i in range(0, len(order) - size + 1, size):
            pick = order[i : i + size]
            yield self.cats[pick], self.nums[pick], self.y[pick]


class ColumnTransformer(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim) for c in CARDINALITIES)
        self.num_scale = nn.Parameter(torch.randn(NUMERIC, dim) / math.sqrt(dim))
        self.num_bias = nn.Parameter(torch.zeros(NUMERIC, dim))
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.head = nn.Linear(dim, len(QUANTILES))
        self.register_buffer("q", torch.tensor(QUANTILES))

    def forward(self, cats, nums, labels):
        tokens = [t(cats[:, i])[:, None] for i, t in enumerate(self.tables)]
        x = torch.cat([self.cls.expand(len(cats), -1, -1), *tokens, nums[..., None] * self.num_scale + self.num_bias], 1)
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.proj(attended)
        x = x + self.mlp(self.norm2(x))
        pred = self.head(x[:, 0])
        err = labels[:, None] - pred
        return torch.maximum(self.q * err, (self.q - 1) * err).mean(), pred


@torch.no_grad()
def evaluate(model, table, size):
    preds, targets = [], []
    for cats, nums, y in table.batches(size):
        preds.append(model(cats, nums, y)[1])
        targets.append(y)
    pred, y = torch.cat(preds).numpy(), torch.cat(targets).numpy()
    inside = (y >= pred[:, 0]) & (y <= pred[:, 2])
    return {"coverage": float(inside.mean()), "mae": float(np.abs(y - pred[:, 1]).mean())}


def main(epochs=5, size=256, log_every=50):
    torch.manual_seed(8)
    train, valid = Policies(25600, 1), Policies(5120, 2)
    net = ColumnTransformer()
    model = torch.compile(net)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)
    total = epochs * (len(train.y) // size)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=3e-3, total_steps=total, pct_start=0.1)
    step, recent, t0 = 0, torch.zeros(()), time.perf_counter()
    for epoch in range(epochs):
        for cats, nums, y in train.batches(size, shuffle=True):
            loss, _ = model(cats, nums, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            recent += loss.detach()
            step += 1
            if step % log_every == 0:
                print(f"step {step}: pinball loss {recent.item() / log_every:.4f}  lr {sched.get_last_lr()[0]:.5f}")
                recent.zero_()
        scores = evaluate(model, valid, size)
        print(f"epoch {epoch}: coverage of 80 % intervals {scores['coverage']:.3f}  absolute error of the median "
              f"{scores['mae']:.4f}  {time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
