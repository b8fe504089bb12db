"""Metric learning on part descriptors with a cross-batch memory (XBM) of past embeddings."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

CLASSES = 60
INPUT_DIM = 64
EMBED_DIM = 32
PER_CLASS, CLASSES_PER_BATCH = 4, 8
BATCH = PER_CLASS * CLASSES_PER_BATCH
MEMORY_BATCHES = 64
ITERATIONS = 30
WARMUP = 3


class PartDescriptors:
    """Noisy views of class prototypes, sampled P classes x K views."""

    def __init__(self, rng):
        self.rng = rng
        self.prototypes = rng.normal(size=(CLASSES, INPUT_DIM)).astype(np.float32)
        self.mixing = rng.normal(size=(INPUT_DIM, INPUT_DIM)).astype(np.float32) / 8

    def views(self, labels):
        noise = self.rng.normal(scale=1.3, size=(len(labels), INPUT_DIM)).astype(np.float32)
        return np.tanh((self.prototypes[labels] + noise) @ self.mixing)

    def batch(self):
        chosen = self.rng.choice(CLASSES, CLASSES_PER_BATCH, replace=False)
        labels = np.repeat(chosen, PER_CLASS)
        return torch.from_numpy(self.views(labels)), torch.from_numpy(labels.astype(np.int64))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(INPUT_DIM, 128), nn.LayerNorm(128), nn.GELU(),
            nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU(),
            nn.Linear(128, EMBED_DIM))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class CrossBatchMemory:
    """The newest embeddings and their labels, at most `capacity` of them."""

    def __init__(self, capacity, device):
        self.capacity = capacity
        self.feats = torch.empty(0, EMBED_DIM, device=device)
        self.labels = torch.empty(0, dtype=torch.int64, device=device)

    def push(self, feats, labels):
        self.feats = torch.cat([feats.detach(), self.feats])[: self.capacity]
        self.labels = torch.cat([labels, self.labels])[: self.capacity]

    def get(self):
        return self.feats, self.labels


def contrastive(query, q_labels, keys, k_labels, margin=0.5):
    similarity = query @ keys.t()
    same = q_labels[:, None] == k_labels[None, :]
    positive = (F.relu(1.0 - similarity) * same).sum() / same.sum().clamp(min=1)
    hard = (similarity > margin) & ~same
    negative = ((similarity - margin) * hard).sum() / hard.sum().clamp(min=1)
    return positive + negative


@torch.no_grad()
def recall_at_1(model, data, device, n=300):
    labels = data.rng.integers(0, CLASSES, 2 * n)
    feats = model(torch.from_numpy(data.views(labels)).to(device))
    nearest = (feats[:n] @ feats[n:].t()).argmax(dim=1).cpu().numpy()
    return float((labels[n:][nearest] == labels[:n]).mean())


def main():
    rng = np.random.default_rng(21)
    torch.manual_seed(21)
    device = torch_xla.device()
    data = PartDescriptors(rng)
    model = Embedder().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    memory = CrossBatchMemory(MEMORY_BATCHES * BATCH, device)

    losses = []
    for it in range(ITERATIONS):
        x, labels = data.batch()
        x, labels = x.to(device), labels.to(device)
        feats = model(x)
        loss = contrastive(feats, labels, feats, labels)
        if it >= WARMUP:
            keys, key_labels = memory.get()
            loss = loss + contrastive(feats, labels, keys, key_labels)
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        memory.push(feats, labels)
        losses.append(loss.detach())
        xm.mark_step()
        if (it + 1) % 15 == 0:
            recent = torch.stack(losses[-15:]).mean().item()
            print(f"iteration {it + 1}: loss {recent:.4f}  R@1 {recall_at_1(model, data, device):.3f}")


if __name__ == "__main__":
    main()
