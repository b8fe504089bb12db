"""Embeds a corpus batch by batch and ranks it for a query; nothing runs before the ranking is read."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class TextEncoder(nn.Module):
    def __init__(self, vocab=200, d=16):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, d)
        self.proj = nn.Linear(d, d)

    def forward(self, ids):
        h = self.proj(self.emb(ids)).tanh()
        return nn.functional.normalize(h, dim=-1)


def corpus(n, g):
    for _ in range(n):
        yield torch.randint(0, 200, (8, 12), generator=g)


encoder = TextEncoder().to(device).eval()
g = torch.Generator().manual_seed(3)
torch_xla.sync()
vectors = []
with torch.no_grad():
    query = encoder(torch.randint(0, 200, (1, 12), generator=g).to(device))
    for ids in corpus(40, g):
        ids = ids.to(device)
        vectors.append(encoder(ids))
    scores = torch.cat(vectors) @ query.T
    best = scores.squeeze(1).topk(3).indices.tolist()
print("best", best)
