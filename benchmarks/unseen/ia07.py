"""Support-ticket routing: bag-of-tokens + attention classifier in bfloat16, bucketed lengths, PyTorch/XLA."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch_xla.amp import autocast

VOCAB, CLASSES, DIM = 800, 6, 48
BUCKETS = (16, 32)
BATCH = {16: 64, 32: 32}


def tickets(n, seed):
    """Token lists whose topic words depend on the class; lengths from 5 to 32."""
    rng = np.random.default_rng(seed)
    topic = np.random.default_rng(0).integers(1, VOCAB, (CLASSES, 40))
    label = rng.integers(0, CLASSES, n)
    texts = []
    for y in label:
        length = int(np.clip(rng.gamma(4, 4), 5, 32))
        words = rng.integers(1, VOCAB, length)
        marked = rng.random(length) < 0.25
        words[marked] = rng.choice(topic[y], marked.sum())
        texts.append(words)
    return texts, label


def bucketed(texts, label, rng=None):
    """Full batches of one of two widths; what is left over is dropped in training."""
    bins = {b: [] for b in BUCKETS}
    order = np.arange(len(texts)) if rng is None else rng.permutation(len(texts))
    for i in order:
        width = next(b for b in BUCKETS if len(texts[i]) <= b)
        bins[width].append(i)
        if len(bins[width]) == BATCH[width]:
            rows = bins[width]
            ids = np.zeros((len(rows), width), np.int64)
            for r, k in enumerate(rows):
                ids[r, : len(texts[k])] = texts[k]
            yield torch.from_numpy(ids), torch.from_numpy(label[rows])
            bins[width] = []


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Dropout(0.1))
        self.query = nn.Linear(DIM, 4)
        self.head = nn.Linear(4 * DIM, CLASSES)

    def forward(self, ids):
        h = self.mix(self.embed(ids))
        score = self.query(h).masked_fill((ids == 0)[..., None], -1e4)
        pooled = torch.einsum("blq,bld->bqd", score.softmax(1), h)
        return self.head(pooled.flatten(1))


def train_epoch(model, optimizer, data, device, rng):
    model.train()
    loss_sum = torch.zeros((), device=device)
    steps = 0
    for ids, y in bucketed(*data, rng):
        ids, y = ids.to(device), y.to(device)
        with autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(ids).float(), y, label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        xm.optimizer_step(optimizer)
        loss_sum += loss.detach()
        steps += 1
        xm.mark_step()
    return loss_sum.item() / steps


@torch.no_grad()
def evaluate(model, data, device):
    model.eval()
    matrix = torch.zeros(CLASSES, CLASSES, device=device)
    for ids, y in bucketed(*data):
        ids, y = ids.to(device), y.to(device)
        with autocast(device, dtype=torch.bfloat16):
            guess = model(ids).argmax(1)
        matrix += F.one_hot(y, CLASSES).float().T @ F.one_hot(guess, CLASSES).float()
        torch_xla.sync()
    return matrix.cpu()


def main(epochs=10):
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    device = torch_xla.device()
    train, test = tickets(6000, 1), tickets(1500, 2)
    model = Router().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best = 0.0
    for epoch in range(epochs):
        loss = train_epoch(model, optimizer, train, device, rng)
        matrix = evaluate(model, test, device)
        accuracy = (matrix.diag().sum() / matrix.sum()).item()
        best = max(best, accuracy)
        print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f} lr {schedule.get_last_lr()[0]:.4f}")
        schedule.step()
    per_class = matrix.diag() / matrix.sum(1)
    print(f"best {best:.3f}, by class", " ".join(f"{v:.2f}" for v in per_class.tolist()))
    print("compilations in all:", met.metric_data("CompileTime")[0])


if __name__ == "__main__":
    main()
