"""Greedy generation with a cache of fixed size and the position in a tensor: one graph for all tokens."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
LENGTH, VOCAB, D = 16, 40, 16


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.qkv, self.head = nn.Embedding(VOCAB, D), nn.Linear(D, 3 * D), nn.Linear(D, VOCAB)

    def forward(self, token, keys, values, at):
        h = self.emb(token)
        q, k, v = self.qkv(h).chunk(3, -1)
        keys, values = keys.index_copy(1, at, k), values.index_copy(1, at, v)
        ahead = torch.arange(LENGTH, device=h.device) > at
        att = (q @ keys.transpose(1, 2) / D**0.5).masked_fill(ahead, -1e9).softmax(-1)
        return self.head(h + att @ values).argmax(-1), keys, values, at + 1


model = Decoder().to(device).eval()
keys, values = (torch.zeros(2, LENGTH, D).to(device) for _ in range(2))
token = torch.tensor([[3], [5]]).to(device)
at = torch.tensor([0]).to(device)
out = torch.zeros(2, LENGTH, dtype=torch.long).to(device)
torch_xla.sync()
with torch.no_grad():
    for _ in range(LENGTH):
        position = at
        token, keys, values, at = model(token, keys, values, at)
        out = out.index_copy(1, position, token)
        torch_xla.sync()
print(out.tolist())
