"""Protein fold classification: a small transformer over residues, trained with LayerDrop."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

RESIDUES = 25


def synthetic_proteins(n, length, folds, seed):
    g = torch.Generator().manual_seed(seed)
    motif = torch.randint(5, RESIDUES, (folds, 6), generator=torch.Generator().manual_seed(99))
    fold = torch.randint(0, folds, (n,), generator=g)
    chain = torch.randint(1, RESIDUES, (n, length), generator=g)
    start = torch.randint(0, length - 6, (n,), generator=g)
    for i in range(n):
        chain[i, start[i]:start[i] + 6] = motif[fold[i]]
    return TensorDataset(chain, fold)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.heads = heads

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, n, w))
        return x + self.mlp(self.norm2(x))


class FoldNet(nn.Module):
    def __init__(self, folds, length, width=32, depth=4, heads=4, layerdrop=0.2):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.layerdrop = layerdrop
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, folds)

    def forward(self, chain):
        x = self.embed(chain) + self.position
        for block in self.blocks:
            if self.training and random.random() < self.layerdrop:
                continue
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Meter:
    def __init__(self, device):
        self.total, self.count = torch.zeros((), device=device), 0

    def update(self, value, n):
        self.total += value.detach() * n
        self.count += n

    def compute(self):
        return self.total.item() / self.count


def evaluate(model, dataset, batch_size, device):
    model.eval()
    loss, accuracy = Meter(device), Meter(device)
    with torch.no_grad():
        for chain, fold in DataLoader(dataset, batch_size):
            chain, fold = chain.to(device), fold.to(device)
            logits = model(chain)
            loss.update(F.cross_entropy(logits, fold), len(fold))
            accuracy.update((logits.argmax(-1) == fold).float().mean(), len(fold))
    model.train()
    return loss.compute(), accuracy.compute()


def train_epoch(model, loader, optimizer, schedule, device, clip):
    meter = Meter(device)
    for chain, fold in loader:
        loss = F.cross_entropy(model(chain), fold, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
        meter.update(loss, len(fold))
    return meter.compute()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--folds", type=int, default=6)
    args = parser.parse_args()
    random.seed(7)
    torch.manual_seed(7)
    device = xm.xla_device()
    train_set = synthetic_proteins(400, args.length, args.folds, 0)
    valid_set = synthetic_proteins(128, args.length, args.folds, 1)
    loader = pl.MpDeviceLoader(DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True), device)
    model = FoldNet(args.folds, args.length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader), eta_min=1e-5)
    for epoch in range(args.epochs):
        started = time.time()
        train_loss = train_epoch(model, loader, optimizer, schedule, device, clip=1.0)
        valid_loss, accuracy = evaluate(model, valid_set, args.batch_size, device)
        xm.master_print(f"{epoch}: train {train_loss:.3f} valid {valid_loss:.3f} acc {accuracy:.3f} {time.time() - started:.1f}s")


if __name__ == "__main__":
    main()
