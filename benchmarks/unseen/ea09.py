"""Melody generation: a small decoder-only transformer is trained on synthetic folk tunes, then composes."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

VOCAB, CONTEXT, DIM, HEADS, LAYERS = 40, 20, 64, 4, 2
BAR = 8
SCALE = torch.tensor([0, 2, 4, 5, 7, 9, 11])


def tunes(n, g):
    """Bars on a I-IV-V-I plan, notes walk along the scale; token = pitch, the last two are rest and bar."""
    plan = torch.tensor([0, 3, 4, 0, 5, 3, 4, 0])
    out = torch.empty(n, CONTEXT + 1, dtype=torch.long)
    degree = torch.randint(7, (n,), generator=g)
    key = torch.randint(5, (n,), generator=g)
    for t in range(CONTEXT + 1):
        if t % BAR == 0:
            out[:, t] = VOCAB - 1
            degree = plan[(t // BAR) % 8].expand(n) + 7 * (degree >= 7)
            continue
        degree = (degree + torch.randint(-2, 3, (n,), generator=g)).clamp(0, 13)
        pitch = key + SCALE[degree % 7] + 12 * (degree // 7)
        rest = torch.rand(n, generator=g) < 0.08
        out[:, t] = torch.where(rest, torch.full_like(pitch, VOCAB - 2), pitch)
    return out


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (DIM // HEADS) ** -0.5
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        out = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, t, DIM))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.att = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Attention()
        self.ff = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.ff(self.n2(x))


class Composer(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.out(self.norm(self.blocks(x)))

    @torch.no_grad()
    def compose(self, start, length, temperature=0.9):
        ids = start
        while ids.shape[1] < length:
            logits = self(ids)[:, -1] / temperature
            top = logits.topk(12, dim=-1).values[:, -1:]
            probs = logits.masked_fill(logits < top, float("-inf")).softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probs, 1)], 1)
            torch_xla.sync()
        return ids


def judge(songs):
    """Share of notes that fit one major key, and of bar lines at their place."""
    best = []
    for s in songs:
        pitch = s[s < VOCAB - 2]
        fits = [torch.isin((pitch - k) % 12, SCALE).float().mean() for k in range(12)]
        best.append(max(fits))
    bars = (songs[:, ::BAR] == VOCAB - 1).float().mean()
    return torch.stack(best).mean().item(), bars.item()


def main():
    torch.manual_seed(4)
    g = torch.Generator().manual_seed(4)
    device = torch_xla.device()
    data = tunes(4096, g).to(device)
    model = Composer().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def train_step(ids):
        opt.zero_grad()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        opt.step()
        return loss.detach()

    step_fn = torch_xla.compile(train_step, full_graph=True)
    t = time.time()
    for step in range(1, 81):
        rows = torch.randint(len(data), (32,), generator=g).to(device)
        loss = step_fn(data[rows])
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {time.time() - t:.1f} s")
    model.eval()
    for round_ in range(2):
        t = time.time()
        start = torch.full((16, 1), VOCAB - 1, device=device)
        songs = model.compose(start, CONTEXT).cpu()
        key, bars = judge(songs)
        print(f"round {round_}: {len(songs)} tunes in {time.time() - t:.1f} s, in key {key:.3f}, bar lines {bars:.3f}")
    print("one tune:", songs[0].tolist())


if __name__ == "__main__":
    main()
