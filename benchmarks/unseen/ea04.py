"""Masked-residue pre-training of a small protein language model, then per-protein embeddings."""
import math
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

AA = "ACDEFGHIKLMNPQRSTVWY"
PAD, MASK, VOCAB = 20, 21, 22
BUCKETS = (48, 96, 160)
LOG_EVERY = 40


def synthetic_proteins(rng, n):
    """Sequences from one of eight order-1 Markov 'families', lengths log-normal."""
    trans = rng.dirichlet(np.full(20, 0.15), size=(8, 20))
    cum = trans.cumsum(-1)
    seqs, family = [], rng.integers(0, 8, n)
    for f in family:
        length = int(np.clip(rng.lognormal(4.2, 0.5), 20, BUCKETS[-1]))
        s = np.empty(length, np.int64)
        s[0] = rng.integers(20)
        u = rng.random(length)
        for i in range(1, length):
            s[i] = min(np.searchsorted(cum[f, s[i - 1]], u[i]), 19)
        seqs.append(s)
    return seqs, family


def bucketed_batches(seqs, tokens, rng=None):
    """Every batch of a bucket has one shape: (tokens // bucket, bucket); the last is filled up."""
    groups = defaultdict(list)
    for i, s in enumerate(seqs):
        groups[next(b for b in BUCKETS if len(s) <= b)].append(i)
    out = []
    for width, members in groups.items():
        size = tokens // width
        if rng is not None:
            rng.shuffle(members)
        for k in range(0, len(members), size):
            ids = members[k:k + size]
            x = np.full((size, width), PAD, np.int64)
            for r, i in enumerate(ids):
                x[r, :len(seqs[i])] = seqs[i]
            out.append((ids, torch.from_numpy(x)))
    if rng is not None:
        rng.shuffle(out)
    return out


class ProteinEncoder(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 20)
        pos = torch.arange(BUCKETS[-1])[:, None] * torch.exp(-math.log(1e4) * torch.arange(0, dim, 2) / dim)
        self.register_buffer("pos", torch.stack([pos.sin(), pos.cos()], -1).flatten(1))

    def forward(self, x):
        h = self.embed(x) + self.pos[: x.shape[1]]
        return self.encoder(h, src_key_padding_mask=x == PAD)


def mask_residues(x, rate=0.15):
    picked = (torch.rand(x.shape, device=x.device) < rate) & (x != PAD)
    return torch.where(picked, MASK, x), picked


def loss_fn(model, x):
    noisy, picked = mask_residues(x)
    logits = model.head(model(noisy))
    nll = F.cross_entropy(logits.flatten(0, 1), x.clamp_max(19).flatten(), reduction="none")
    w = picked.flatten().float()
    return (nll * w).sum() / w.sum().clamp_min(1)


def report(step, loss):
    print(f"  step {step}: loss {loss.item():.4f}")


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    device = torch_xla.device()
    seqs, family = synthetic_proteins(rng, 1400)
    model = ProteinEncoder().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(3):
        t = time.time()
        for _, x in bucketed_batches(seqs, 1920, rng):
            x = x.to(device)
            opt.zero_grad()
            loss = loss_fn(model, x)
            loss.backward()
            xm.optimizer_step(opt)
            step += 1
            if step % LOG_EVERY == 0:
                xm.add_step_closure(report, args=(step, loss.detach()))
            torch_xla.sync()
        xm.wait_device_ops()
        print(f"epoch {epoch}: {time.time() - t:.1f} s")

    model.eval()
    vectors = np.empty((len(seqs), 64), np.float32)
    with torch.no_grad():
        for ids, x in bucketed_batches(seqs, 1920):
            x = x.to(device)
            keep = (x != PAD).unsqueeze(-1)
            v = (model(x) * keep).sum(1) / keep.sum(1).clamp_min(1)
            vectors[ids] = v.cpu().numpy()[: len(ids)]
    vectors -= vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sim = vectors @ vectors.T
    np.fill_diagonal(sim, -1)
    print(f"nearest neighbour of the same family: {(family[sim.argmax(1)] == family).mean():.3f} (chance 0.125)")


if __name__ == "__main__":
    main()
