"""Self-supervised embedding of single-cell counts: prototypes with balanced assignment, a queue on the device and count noise."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch.distributions import Gamma, Poisson

GENES, KINDS = 120, 7


class Assay:
    """Counts of genes per cell: negative binomial around the profile of the cell's kind."""

    def __init__(self, cells, seed):
        torch.manual_seed(seed)
        profiles = Gamma(0.4, 0.4).sample((KINDS, GENES))
        self.kind = torch.randint(0, KINDS, (cells,))
        depth = 2 + 4 * torch.rand(cells, 1)
        rate = profiles[self.kind] * depth * Gamma(4.0, 4.0).sample((cells, GENES))
        self.counts = Poisson(rate).sample()
        self.rng = random.Random(seed)

    def batches(self, size):
        order = list(range(len(self.kind)))
        self.rng.shuffle(order)
        while len(order) >= size:
            rows, order = order[:size], order[size:]
            yield self.counts[rows]


class Embedder(nn.Module):
    def __init__(self, width=96, dim=32, prototypes=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(GENES, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, dim))
        self.prototypes = nn.Linear(dim, prototypes, bias=False)

    def embed(self, counts):
        return F.normalize(self.body(torch.log1p(counts)), dim=-1)

    def forward(self, counts):
        z = self.embed(counts)
        return z, z @ F.normalize(self.prototypes.weight, dim=-1).t()


def thin(counts, low=0.5):
    """A shallower sequencing of the same cells: each one keeps a random share of its counts."""
    share = low + (1 - low) * torch.rand(counts.shape[0], 1, device=counts.device)
    noise = torch.randn_like(counts) * (counts * share * (1 - share)).sqrt()
    return (counts * share + noise).clamp(min=0).round()


@torch.no_grad()
def balanced(scores, rounds=3, sharp=0.05):
    """Sinkhorn: every prototype gets the same mass."""
    q = ((scores - scores.max()) / sharp).exp().t()
    q = q / q.sum()
    for _ in range(rounds):
        q = q / q.sum(1, keepdim=True) / q.shape[0]
        q = q / q.sum(0, keepdim=True) / q.shape[1]
    return (q * q.shape[1]).t()


class FeatureQueue:
    def __init__(self, length, dim, device):
        self.rows = F.normalize(torch.randn(length, dim), dim=-1).to(device)
        self.head = torch.zeros((), dtype=torch.long, device=device)
        self.offsets = None

    def push(self, z):
        if self.offsets is None:
            self.offsets = torch.arange(z.shape[0]).to(z.device)
        self.rows.index_copy_(0, (self.head + self.offsets) % self.rows.shape[0], z)
        self.head = (self.head + z.shape[0]) % self.rows.shape[0]


class Clustering:
    def __init__(self, device, args):
        self.device, self.args = device, args
        self.net = Embedder().to(device)
        self.queue = FeatureQueue(args.queue, 32, device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=args.lr, weight_decay=1e-4)
        self.calls = 0
        torch_xla.sync()

    def targets(self, z, scores):
        """The queue's cells take part in the balance."""
        past = self.queue.rows @ F.normalize(self.net.prototypes.weight.detach(), dim=-1).t()
        return balanced(torch.cat([scores.detach(), past]))[:scores.shape[0]]

    def micro_step(self, counts):
        counts = counts.to(self.device)
        (z1, s1), (z2, s2) = self.net(thin(counts)), self.net(thin(counts))
        t1, t2 = self.targets(z1, s1), self.targets(z2, s2)
        temperature = 0.1 + 0.05 * 0.99 ** self.calls
        loss = -(t1 * (s2 / temperature).log_softmax(-1)).sum(-1).mean()
        loss = loss - (t2 * (s1 / temperature).log_softmax(-1)).sum(-1).mean()
        (loss / self.args.accumulate).backward()
        self.queue.push(z1.detach())
        self.calls += 1
        if self.calls % self.args.accumulate == 0:
            self.opt.step()
            self.opt.zero_grad()
        torch_xla.sync()
        return loss.detach()

    @torch.no_grad()
    def purity(self, assay):
        """Share of cells whose prototype's most frequent kind is theirs; one read of the assignment for all cells."""
        _, scores = self.net(assay.counts.to(self.device))
        assigned = scores.argmax(-1).cpu()
        table = torch.zeros(scores.shape[1], KINDS).index_put_((assigned, assay.kind), torch.ones(len(assigned)), accumulate=True)
        return (table.amax(1).sum() / table.sum()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=1280)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--queue", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    assay = Assay(args.cells, seed=41)
    clustering = Clustering(torch_xla.device(), args)
    for epoch in range(args.epochs):
        losses = [clustering.micro_step(counts) for counts in assay.batches(args.batch)]
        print(f"epoch {epoch} loss {torch.stack(losses).mean().item():.3f} purity {clustering.purity(assay):.3f}")


if __name__ == "__main__":
    main()
