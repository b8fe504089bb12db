"""Session-based recommendation: a small self-attentive next-item model on click sessions."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

ITEMS = 900
PAD = 0
BUCKETS = (8, 20)
BATCH = 64
EPOCHS = 5
DIM = 48


def simulate_sessions(rng, n):
    """Clicks walk on a ring of topics with occasional jumps."""
    sessions = []
    lengths = np.clip(rng.geometric(0.14, n) + 2, 3, BUCKETS[-1] + 1)
    for length in lengths:
        item = rng.integers(1, ITEMS)
        clicks = [item]
        for _ in range(length - 1):
            step = rng.integers(1, 6) if rng.random() < 0.85 else rng.integers(1, ITEMS)
            item = (item + step - 1) % (ITEMS - 1) + 1
            clicks.append(item)
        sessions.append(np.asarray(clicks, np.int64))
    return sessions


class BucketedBatches:
    """Full batches of sessions, each padded to the width of its bucket."""

    def __init__(self, sessions, rng):
        self.rng = rng
        self.tables = []
        for i, width in enumerate(BUCKETS):
            low = BUCKETS[i - 1] if i else 0
            members = [s for s in sessions if low < len(s) - 1 <= width]
            table = np.full((len(members), width + 1), PAD, np.int64)
            for row, s in enumerate(members):
                table[row, : len(s)] = s
            self.tables.append(table)

    def __iter__(self):
        plan = []
        for t, table in enumerate(self.tables):
            order = self.rng.permutation(len(table))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                plan.append((t, order[start:start + BATCH]))
        self.rng.shuffle(plan)
        for t, rows in plan:
            clicks = self.tables[t][rows]
            yield torch.from_numpy(clicks[:, :-1].copy()), torch.from_numpy(clicks[:, 1:].copy())


class NextItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(BUCKETS[-1], DIM) * 0.02)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)
        self.ff = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        causal = torch.triu(torch.full((BUCKETS[-1], BUCKETS[-1]), -1e9), diagonal=1)
        self.register_buffer("causal", causal)

    def forward(self, clicks):
        width = clicks.shape[1]
        x = self.items(clicks) + self.positions[:width]
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / DIM ** 0.5 + self.causal[:width, :width]
        scores = scores.masked_fill((clicks == PAD)[:, None, :], -1e9)
        x = x + self.out(scores.softmax(-1) @ v)
        x = x + self.ff(self.norm2(x))
        return x @ self.items.weight.t()


def masked_loss(logits, following):
    per_click = F.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="none")
    real = (following != PAD).flatten().float()
    return (per_click * real).sum() / real.sum()


def recall_at(logits, following, k=20):
    """Hits and clicks of a batch, left on the device."""
    own = logits.gather(-1, following[..., None])
    rank = (logits > own).sum(-1)
    real = following != PAD
    return torch.stack([((rank < k) & real).sum(), real.sum()])


def main():
    rng = np.random.default_rng(3)
    torch.manual_seed(3)
    device = torch_xla.device()
    train = BucketedBatches(simulate_sessions(rng, 14_000), rng)
    held_out = BucketedBatches(simulate_sessions(rng, 1_500), rng)
    model = NextItem().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)

    for epoch in range(EPOCHS):
        losses = []
        for clicks, following in train:
            clicks, following = clicks.to(device), following.to(device)
            opt.zero_grad()
            loss = masked_loss(model(clicks), following)
            loss.backward()
            xm.optimizer_step(opt)
            losses.append(loss.detach())
            xm.mark_step()

        counts = []
        with torch.no_grad():
            for clicks, following in held_out:
                counts.append(recall_at(model(clicks.to(device)), following.to(device)))
                xm.mark_step()
        hits, seen = torch.stack(counts).sum(0).tolist()
        mean_loss = torch.stack(losses).mean().item()
        print(f"epoch {epoch}: loss {mean_loss:.4f} recall@20 {hits / seen:.4f}")


if __name__ == "__main__":
    main()
