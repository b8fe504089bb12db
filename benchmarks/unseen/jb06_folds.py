# Cross-validated tabular regression with a small residual network (house-price like data).
# %% imports and settings
import time

import numpy as np
import torch
import torch._dynamo
from torch import nn

FOLDS = 5
EPOCHS = 6
BATCH = 128
N_NUMERIC, N_CATEGORIES = 12, (7, 11, 5)
rng = np.random.default_rng(42)
torch.manual_seed(42)

# %% data
N = 3200
numeric = rng.standard_normal((N, N_NUMERIC)).astype(np.float32)
categories = np.stack([rng.integers(0, c, N) for c in N_CATEGORIES], 1)
effects = [rng.normal(0, 0.7, c) for c in N_CATEGORIES]
price = (1.2 * numeric[:, 0] - 0.8 * numeric[:, 1] * numeric[:, 2] + np.sin(2 * numeric[:, 3])
         + 0.5 * np.maximum(numeric[:, 4], 0) ** 2
         + sum(e[categories[:, i]] for i, e in enumerate(effects)) + 0.3 * rng.standard_normal(N))
price = ((price - price.mean()) / price.std()).astype(np.float32)
numeric, categories, price = map(torch.from_numpy, (numeric, categories, price))


# %% model
class ResidualBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.down(self.drop(torch.nn.functional.gelu(self.up(self.norm(x)))))


class TabularResNet(nn.Module):
    def __init__(self, width=64, depth=3):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(c, 6) for c in N_CATEGORIES])
        self.enter = nn.Linear(N_NUMERIC + 6 * len(N_CATEGORIES), width)
        self.blocks = nn.ModuleList([ResidualBlock(width, 2 * width) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, numeric, categories):
        embedded = [e(categories[:, i]) for i, e in enumerate(self.embeddings)]
        x = self.enter(torch.cat([numeric, *embedded], 1))
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)


# %% one fold
def evaluate(net, rows):
    net.eval()
    with torch.no_grad():
        parts = [net(numeric[r], categories[r]) for r in rows.split(BATCH)]
    return torch.cat(parts)


def run_fold(fold, train_rows, test_rows):
    torch._dynamo.reset()          # start every fold from a clean state
    torch.manual_seed(fold)
    model = TabularResNet()
    net = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=EPOCHS * (len(train_rows) // BATCH))
    best = float("inf")
    for epoch in range(EPOCHS):
        net.train()
        order = train_rows[torch.randperm(len(train_rows))]
        for rows in order.split(BATCH):
            loss = torch.nn.functional.smooth_l1_loss(net(numeric[rows], categories[rows]), price[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        rmse = (evaluate(net, test_rows) - price[test_rows]).square().mean().sqrt().item()
        best = min(best, rmse)
    return best


# %% cross validation
order = torch.from_numpy(rng.permutation(N))
chunks = order.chunk(FOLDS)
scores = []
for fold in range(FOLDS):
    began = time.perf_counter()
    held_out = chunks[fold]
    rest = torch.cat([c for i, c in enumerate(chunks) if i != fold])
    scores.append(run_fold(fold, rest, held_out))
    print(f"fold {fold}: best RMSE {scores[-1]:.3f}  ({len(rest)} rows, {time.perf_counter() - began:.1f} s)")

print(f"RMSE {np.mean(scores):.3f} +- {np.std(scores):.3f} over {FOLDS} folds")
baseline = price.std().item()
print(f"a constant would give {baseline:.3f}")
