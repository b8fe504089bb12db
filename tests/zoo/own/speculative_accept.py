"""Speculative decoding: a draft model proposes four tokens, as many as the target agrees with are taken."""
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
VOCAB, WIDTH, DRAFT = 12, 64, 4


class Bigram(nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.table = nn.Embedding(VOCAB, VOCAB)
        base = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))
        noise = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed))
        self.table.weight.data = base + 0.6 * noise

    def forward(self, ids):
        return self.table(ids).argmax(-1)


target, draft = Bigram(2).to(device), Bigram(3).to(device)
last = torch.tensor([3]).to(device)
text = torch.zeros(WIDTH, dtype=torch.long).to(device)
length, rounds = 0, 0
xm.mark_step()
with torch.no_grad():
    while length < WIDTH - DRAFT - 1 and rounds < 14:
        proposed = [last]
        for _ in range(DRAFT):
            proposed.append(draft(proposed[-1]))
        proposed = torch.cat(proposed)
        wanted = target(proposed)
        agrees = (proposed[1:] == wanted[:-1]).long().cumprod(0)
        accepted = int(agrees.sum())
        text[length:length + accepted + 1] = wanted[:accepted + 1]
        last = wanted[accepted:accepted + 1]
        xm.mark_step()
        length += accepted + 1
        rounds += 1
print("text", text[:10].tolist(), "rounds", rounds)
