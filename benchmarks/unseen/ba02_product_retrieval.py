import torch_xla
import torch_xla.core.xla_model as xm

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, FEATURES, DIM = 800, 48, 48
BATCH, QUEUE, TEMPERATURE = 48, 480, 0.1
STEPS, EVAL_EVERY, CATALOGUE = 150, 50, 16


class QueryTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(DIM, 96), nn.GELU(), nn.Linear(96, DIM))

    def forward(self, tokens):
        keep = (tokens != 0).unsqueeze(-1).float()
        pooled = (self.words(tokens) * keep).sum(1) / keep.sum(1).clamp(min=1.0)
        return F.normalize(self.mlp(pooled), dim=-1)


class ItemTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(FEATURES, 96), nn.GELU(), nn.Linear(96, DIM))

    def forward(self, features):
        return F.normalize(self.mlp(features), dim=-1)


class NegativeQueue:
    def __init__(self, size, dim, device):
        self.items = F.normalize(torch.randn(size, dim), dim=-1).to(device)
        self.size = size
        self.head = 0

    @torch.no_grad()
    def push(self, keys):
        n = keys.size(0)
        end = self.head + n
        if end <= self.size:
            self.items[self.head:end] = keys
        else:
            first = self.size - self.head
            self.items[self.head:] = keys[:first]
            self.items[:n - first] = keys[first:]
        self.head = end % self.size


class Catalogue:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.features = torch.randn(n, FEATURES, generator=g)
        project = torch.randn(FEATURES, 10, generator=g)
        self.words = 1 + (self.features @ project).mul(7).long().abs() % (VOCAB - 1)

    def batch(self, index):
        drop = torch.rand(len(index), 10) < 0.2
        return self.words[index].masked_fill(drop, 0), self.features[index]


def recall_at(k, query, item, catalogue, device):
    with torch.no_grad():
        index = torch.arange(len(catalogue.features))
        words, features = catalogue.batch(index)
        q = query(words.to(device))
        corpus = item(features.to(device))
        top = (q @ corpus.t()).topk(k).indices
        truth = index.to(device)
    xm.mark_step()
    hits = sum(1 for row, answer in zip(top, truth) if answer in row)
    return hits / len(catalogue.features)


def momentum_update(source, target, m):
    with torch.no_grad():
        for a, b in zip(source.parameters(), target.parameters()):
            b.mul_(m).add_(a.detach(), alpha=1 - m)


def main():
    torch.manual_seed(1)
    device = torch.device("xla")
    query, item, slow_item = QueryTower().to(device), ItemTower().to(device), ItemTower().to(device)
    slow_item.load_state_dict(item.state_dict())
    queue = NegativeQueue(QUEUE, DIM, device)
    train, held_out = Catalogue(2000, 3), Catalogue(CATALOGUE, 3)
    params = list(query.parameters()) + list(item.parameters())
    opt = torch.optim.SGD(params, lr=0.3)
    labels = torch.zeros(BATCH, dtype=torch.long, device=device)
    running = torch.zeros((), device=device)
    for step in range(1, STEPS + 1):
        words, features = train.batch(torch.randint(0, 2000, (BATCH,)))
        features = features.to(device)
        q, positive = query(words.to(device)), item(features)
        with torch.no_grad():
            keys = slow_item(features)
        logits = torch.cat([(q * positive).sum(-1, keepdim=True), q @ queue.items.t()], 1)
        loss = F.cross_entropy(logits / TEMPERATURE, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        momentum_update(item, slow_item, 0.99)
        queue.push(keys)
        running += loss.detach()
        xm.mark_step()
        if step % EVAL_EVERY == 0:
            score = recall_at(3, query, item, held_out, device)
            print(f"step {step} loss {running.item() / EVAL_EVERY:.3f} recall@3 {score:.3f}")
            running.zero_()


if __name__ == "__main__":
    main()
