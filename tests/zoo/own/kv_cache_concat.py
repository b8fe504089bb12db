"""Decoder with a key/value cache that grows by torch.cat; tokens stay on the device until the end."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
NEW = 6


class Attention(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, h, cache):
        q, k, v = self.qkv(h).chunk(3, -1)
        k = torch.cat([cache[0], k], 1)
        v = torch.cat([cache[1], v], 1)
        att = (q @ k.transpose(1, 2) / 4).softmax(-1)
        return h + att @ v, (k, v)


class Decoder(nn.Module):
    def __init__(self, vocab=32, d=16):
        super().__init__()
        self.emb, self.attn, self.head = nn.Embedding(vocab, d), Attention(d), nn.Linear(d, vocab)

    def forward(self, token, cache):
        h, cache = self.attn(self.emb(token), cache)
        return self.head(h[:, -1]).argmax(-1, keepdim=True), cache


model = Decoder().to(device).eval()
token = torch.ones(2, 1, dtype=torch.long).to(device)
cache = (torch.zeros(2, 1, 16).to(device), torch.zeros(2, 1, 16).to(device))
tokens = []
torch_xla.sync()
with torch.no_grad():
    for step in range(NEW):
        token, cache = model(token, cache)
        tokens.append(token)
        torch_xla.sync()
print(torch.cat(tokens, 1).tolist())
