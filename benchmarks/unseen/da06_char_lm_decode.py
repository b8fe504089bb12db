"""A character language model: trained on a toy grammar, then it writes text with cached keys, on an XLA device."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

SUBJECTS = ["the cat", "a dog", "my friend", "the old man"]
VERBS = ["sees", "likes", "finds", "wants"]
OBJECTS = ["a bird", "the moon", "some bread", "a red boat"]
CHARS = sorted(set(" ".join(SUBJECTS + VERBS + OBJECTS) + "."))
STOI = {c: i for i, c in enumerate(CHARS)}
BLOCK, WIDTH, HEADS, LAYERS = 48, 64, 4, 1


def corpus(n, seed=0):
    rng = random.Random(seed)
    text = " ".join(f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(OBJECTS)}." for _ in range(n))
    return torch.tensor([STOI[c] for c in text])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def split(self, t):
        return t.view(t.shape[0], t.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x, past=None):
        q, k, v = (self.split(t) for t in self.qkv(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        if past is None:
            n = x.shape[1]
            mask = torch.triu(torch.ones(n, n, device=x.device), 1)
            scores = scores - 1e9 * mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        return self.out(mixed), (k, v)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, past=None):
        a, kv = self.attention(self.n1(x), past)
        x = x + a
        return x + self.mlp(self.n2(x)), kv


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(len(CHARS), WIDTH)
        self.place = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, len(CHARS))

    def forward(self, ids, positions, past=None):
        x = self.token(ids) + self.place(positions)
        kept = []
        for i, b in enumerate(self.blocks):
            x, kv = b(x, None if past is None else past[i])
            kept.append(kv)
        return self.head(x), kept


@torch.no_grad()
def write(model, prompts, length, device):
    ids = torch.tensor([[STOI[c] for c in p] for p in prompts], device=device)
    logits, past = model(ids, torch.arange(ids.shape[1], device=device))
    position = torch.tensor([ids.shape[1]], device=device)
    out = [ids]
    for _ in range(length):
        token = logits[:, -1].argmax(-1, keepdim=True)
        out.append(token)
        logits, past = model(token, position, past)
        position = position + 1
        torch_xla.sync()
    return ["".join(CHARS[i] for i in row) for row in torch.cat(out, 1).tolist()]


def train(model, data, steps, device, batch=16):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    positions = torch.arange(BLOCK, device=device)
    for step in range(1, steps + 1):
        at = torch.randint(len(data) - BLOCK - 1, (batch,))
        rows = torch.stack([data[i:i + BLOCK + 1] for i in at]).to(device)
        logits, _ = model(rows[:, :-1], positions)
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = CharLM().to(device)
    train(model, corpus(600), 300, device)
    model.eval()
    for text in write(model, ["the cat", "my frie", "a dog s"], 36, device):
        print(repr(text))


if __name__ == "__main__":
    main()
