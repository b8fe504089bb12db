"""Telco churn: entity embeddings + MLP, trained with online hard example mining."""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

SEED = 11
N_ROWS = 4_500
BATCH = 512
EPOCHS = 2
CARDINALITIES = {"plan": 12, "region": 50, "device": 180, "agent": 420, "channel": 7}
N_NUMERIC = 14


def make_table(rng):
    cats = {c: rng.integers(0, k, N_ROWS) for c, k in CARDINALITIES.items()}
    nums = rng.normal(size=(N_ROWS, N_NUMERIC)).astype(np.float32)
    nums[:, 0] = np.abs(nums[:, 0]) * 20  # tenure
    nums[:, 1] = np.exp(nums[:, 1])       # monthly charge
    effects = {c: rng.normal(scale=0.7, size=k) for c, k in CARDINALITIES.items()}
    z = sum(effects[c][cats[c]] for c in cats) - 0.05 * nums[:, 0] + 0.3 * nums[:, 1] - 1.0
    y = (rng.random(N_ROWS) < 1 / (1 + np.exp(-z))).astype(np.float32)
    return cats, nums, y


class ChurnNet(nn.Module):
    def __init__(self, hidden=(128, 64), p=0.1):
        super().__init__()
        self.embeds = nn.ModuleList(
            nn.Embedding(k, min(32, (k + 1) // 2)) for k in CARDINALITIES.values()
        )
        width = sum(e.embedding_dim for e in self.embeds) + N_NUMERIC
        layers = [nn.BatchNorm1d(width)]
        for h in hidden:
            layers += [nn.Linear(width, h), nn.ReLU(), nn.BatchNorm1d(h), nn.Dropout(p)]
            width = h
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, cats, nums):
        parts = [emb(cats[:, i]) for i, emb in enumerate(self.embeds)]
        return self.mlp(torch.cat(parts + [nums], dim=1)).squeeze(1)


class HardExampleLoss(nn.Module):
    """Mean BCE over the hardest share of the batch; the share shrinks as training goes on."""

    def __init__(self, total_steps, start=1.0, end=0.25):
        super().__init__()
        self.total_steps, self.start, self.end = total_steps, start, end
        self.calls = 0

    def share(self):
        t = min(1.0, self.calls / self.total_steps)
        return self.end + 0.5 * (self.start - self.end) * (1 + math.cos(math.pi * t))

    def forward(self, logits, target):
        per_row = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        keep = max(1, int(self.share() * per_row.shape[0]))
        self.calls += 1
        hardest, _ = torch.topk(per_row, keep)
        return hardest.mean()


def auc(scores, labels):
    order = np.argsort(scores)
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    pos = labels > 0.5
    n_pos, n_neg = pos.sum(), (~pos).sum()
    return (ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)


def batches(index, cats, nums, y, device):
    table = np.stack([cats[c] for c in CARDINALITIES], axis=1)
    for start in range(0, len(index) - BATCH + 1, BATCH):
        rows = index[start:start + BATCH]
        yield (torch.from_numpy(table[rows]).to(device),
               torch.from_numpy(nums[rows]).to(device),
               torch.from_numpy(y[rows]).to(device))


def main():
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    device = torch_xla.device()
    cats, nums, y = make_table(rng)
    nums = (nums - nums.mean(0)) / nums.std(0)
    perm = rng.permutation(N_ROWS)
    train_rows, valid_rows = perm[: int(0.85 * N_ROWS)], perm[int(0.85 * N_ROWS):]

    model = ChurnNet().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    steps_per_epoch = len(train_rows) // BATCH
    criterion = HardExampleLoss(EPOCHS * steps_per_epoch)

    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for c, n, t in batches(rng.permutation(train_rows), cats, nums, y, device):
            opt.zero_grad()
            loss = criterion(model(c, n), t)
            loss.backward()
            xm.optimizer_step(opt)
            losses.append(loss.detach())
            xm.mark_step()

        model.eval()
        scores, labels = [], []
        with torch.no_grad():
            for c, n, t in batches(valid_rows, cats, nums, y, device):
                scores.append(torch.sigmoid(model(c, n)))
                labels.append(t)
                xm.mark_step()
        scores = torch.cat(scores).cpu().numpy()
        labels = torch.cat(labels).cpu().numpy()
        mean_loss = torch.stack(losses).mean().item()
        print(f"epoch {epoch} loss {mean_loss:.4f} valid AUC {auc(scores, labels):.4f}")


if __name__ == "__main__":
    main()
