"""Knowledge-graph embedding (RotatE) with filtered negatives, and filtered ranks on held-out triples."""
import argparse
import collections
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla


def make_graph(entities, relations, triples, seed):
    rng = random.Random(seed)
    offsets = [rng.randrange(1, entities) for _ in range(relations)]
    found = set()
    while len(found) < triples:
        h, r = rng.randrange(entities), rng.randrange(relations)
        found.add((h, r, (h + offsets[r] + rng.randrange(6)) % entities))
    rows = sorted(found)
    rng.shuffle(rows)
    return rows


class TripleSampler:
    """Batches of triples, each with `negatives` corrupted tails that are not true ones."""

    def __init__(self, triples, known, entities, batch_size, negatives, seed):
        self.triples, self.known, self.entities = triples, known, entities
        self.batch_size, self.negatives = batch_size, negatives
        self.rng = random.Random(seed)

    def corrupt(self, head, relation):
        true, out = self.known[head, relation], []
        while len(out) < self.negatives:
            tail = self.rng.randrange(self.entities)
            if tail not in true:
                out.append(tail)
        return out

    def __iter__(self):
        self.rng.shuffle(self.triples)
        for i in range(0, len(self.triples) - self.batch_size + 1, self.batch_size):
            batch = self.triples[i : i + self.batch_size]
            negatives = [self.corrupt(h, r) for h, r, _ in batch]
            yield torch.tensor(batch), torch.tensor(negatives)


class RotatE(nn.Module):
    def __init__(self, entities, relations, dim, margin=6.0):
        super().__init__()
        self.entity = nn.Embedding(entities, 2 * dim)
        self.phase = nn.Embedding(relations, dim)
        nn.init.uniform_(self.phase.weight, -math.pi, math.pi)
        self.margin = margin

    def rotate(self, head, relation):
        re, im = self.entity(head).chunk(2, -1)
        phase = self.phase(relation)
        c, s = phase.cos(), phase.sin()
        return torch.cat([re * c - im * s, re * s + im * c], -1)

    def score(self, query, tail):
        return self.margin - (query - tail).abs().mean(-1) * 10

    def forward(self, triples, negatives):
        query = self.rotate(triples[:, 0], triples[:, 1])
        positive = self.score(query, self.entity(triples[:, 2]))
        negative = self.score(query.unsqueeze(1), self.entity(negatives))
        weight = negative.detach().softmax(-1)
        return -(F.logsigmoid(positive) + (weight * F.logsigmoid(-negative)).sum(-1)).mean()


@torch.no_grad()
def filtered_mrr(model, triples, known, device, batch_size=32):
    ranks = []
    everything = model.entity.weight
    for i in range(0, len(triples), batch_size):
        batch = triples[i : i + batch_size]
        h, r, t = torch.tensor(batch, device=device).unbind(1)
        scores = model.score(model.rotate(h, r).unsqueeze(1), everything)
        target = scores.gather(1, t.unsqueeze(1))
        rows, columns = zip(*((j, e) for j, (a, b, c) in enumerate(batch) for e in known[a, b] if e != c))
        scores[torch.tensor(rows, device=device), torch.tensor(columns, device=device)] = -math.inf
        ranks.append(1 + (scores > target).sum(1))
        torch_xla.sync()
    return (1 / torch.cat(ranks).float()).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=256)
    args = parser.parse_args()
    torch.manual_seed(0)
    entities, relations = 600, 12
    rows = make_graph(entities, relations, 128 * 24 + 256, seed=2)
    known = collections.defaultdict(set)
    for h, r, t in rows:
        known[h, r].add(t)
    train, test = rows[256:], rows[:256]
    device = torch_xla.device()
    model = RotatE(entities, relations, dim=4).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    sampler = TripleSampler(train, known, entities, args.batch_size, args.negatives, seed=3)
    for epoch in range(args.epochs):
        total, steps = torch.zeros((), device=device), 0
        for triples, negatives in sampler:
            loss = model(triples.to(device), negatives.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
            torch_xla.sync()
        print(f"epoch {epoch}: loss {total.item() / steps:.4f}, filtered MRR {filtered_mrr(model, test, known, device):.3f}", flush=True)


if __name__ == "__main__":
    main()
