"""Support-ticket triage: length-bucketed batches, two-phase fine-tuning, periodic evaluation."""
import random

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, QUEUES, BUCKETS, BATCH = 120, 4, (8, 16), 16


class Tickets:
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            label = rng.randrange(QUEUES)
            length = rng.randint(4, BUCKETS[-1])
            words = [rng.randrange(1, VOCAB) if rng.random() < 0.6 else 1 + label * 7 + rng.randrange(7)
                     for _ in range(length)]
            self.rows.append((words, label))

    def batches(self, rng):
        """Full batches only; each batch holds tickets of one bucket, padded to its size."""
        groups = {b: [] for b in BUCKETS}
        for words, label in self.rows:
            size = next(b for b in BUCKETS if len(words) <= b)
            groups[size].append((words + [0] * (size - len(words)), label))
        out = []
        for size, rows in groups.items():
            rng.shuffle(rows)
            out += [rows[i:i + BATCH] for i in range(0, len(rows) - BATCH + 1, BATCH)]
        rng.shuffle(out)
        for rows in out:
            yield torch.tensor([w for w, _ in rows]), torch.tensor([y for _, y in rows])


class Triage(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.score = nn.Linear(dim, 1)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, QUEUES))

    def forward(self, ids):
        x = self.emb(ids)
        att = self.score(x).squeeze(-1).masked_fill(ids == 0, -1e4).softmax(-1)
        return self.head(self.drop((att.unsqueeze(-1) * x).sum(1)))


class Plateau:
    """Halves the learning rate when the evaluation stops improving."""

    def __init__(self, optimizer, patience=1):
        self.optimizer, self.patience, self.best, self.bad = optimizer, patience, 0.0, 0

    def update(self, value):
        if value > self.best + 1e-3:
            self.best, self.bad = value, 0
            return
        self.bad += 1
        if self.bad > self.patience:
            self.bad = 0
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5


@torch.no_grad()
def evaluate(model, batches, device):
    model.eval()
    pairs = []
    for ids, y in batches:
        pred = model(ids.to(device)).argmax(-1)
        xm.mark_step()
        pairs.append((pred, y))
    model.train()
    return sum(int((p.cpu() == y).sum()) for p, y in pairs) / sum(len(y) for _, y in pairs)


def train(device, epochs=10, log_every=50):
    rng = random.Random(0)
    model = Triage().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    plateau = Plateau(optimizer)
    data = Tickets(900, 1)
    held_out = list(Tickets(240, 2).batches(random.Random(9)))
    recent = torch.zeros((), device=device)
    step, best, best_state = 0, 0.0, None
    for epoch in range(epochs):
        for ids, y in data.batches(rng):
            loss = F.cross_entropy(model(ids.to(device)), y.to(device), label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            recent.mul_(0.95).add_(loss.detach(), alpha=0.05)
            xm.mark_step()
            step += 1
            if step % log_every == 0:
                lr = optimizer.param_groups[0]["lr"]
                print(f"step {step} loss {recent.item():.4f} lr {lr:.2e}", flush=True)
        if epoch % 3 == 2:
            acc = evaluate(model, held_out, device)
            plateau.update(acc)
            if acc > best:
                best, best_state = acc, {k: v.cpu() for k, v in model.state_dict().items()}
    return best, best_state


def main():
    torch.manual_seed(0)
    best, state = train(xm.xla_device())
    print(f"best accuracy {best:.3f}, {sum(v.numel() for v in state.values())} weights kept")


if __name__ == "__main__":
    main()
