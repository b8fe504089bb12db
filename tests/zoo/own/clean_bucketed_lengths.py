"""Sequences padded to one of three buckets: three graphs, all met in the first steps and used throughout."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
BUCKETS = (8, 16, 32)
LENGTHS = [13, 6, 27, 8, 30, 15, 5, 9, 28, 14, 7, 3, 31, 16, 24, 8, 11, 22, 4, 12, 29]


class Tagger(nn.Module):
    def __init__(self, vocab=50, d=12):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.head = nn.Linear(d, 5)

    def forward(self, ids):
        return self.head(torch.relu(self.emb(ids)))


def bucketed(g):
    for length in LENGTHS:
        ids = torch.randint(1, 50, (4, length), generator=g)
        edge = next(edge for edge in BUCKETS if edge >= length)
        yield F.pad(ids, (0, edge - length)), F.pad(ids % 5, (0, edge - length), value=-100)


model = Tagger().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch_xla.sync()
for epoch in range(2):
    for ids, tags in bucketed(torch.Generator().manual_seed(2)):
        ids, tags = ids.to(device), tags.to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten(), ignore_index=-100)
        loss.backward()
        opt.step()
        torch_xla.sync()
print("loss", round(loss.item(), 3))
