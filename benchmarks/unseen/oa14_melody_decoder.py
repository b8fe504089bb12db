"""A compact causal decoder for melodies: compiled training step, validation and sampling."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NOTES, CONTEXT = 48, 64


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Attention(d, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class Melody(nn.Module):
    def __init__(self, d=64, heads=4, layers=2):
        super().__init__()
        self.note, self.pos = nn.Embedding(NOTES, d), nn.Embedding(CONTEXT, d)
        self.layers = nn.ModuleList([Layer(d, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, NOTES)

    def forward(self, ids):
        x = self.note(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


def tunes(n, seed):
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(0, NOTES, (n, 1), generator=g)
    steps = torch.tensor([-4, -2, -1, 1, 2, 3, 5])[torch.randint(0, 7, (n, 4), generator=g)]
    walk = steps.repeat(1, (CONTEXT + 4) // 4)[:, : CONTEXT]
    return torch.cat([start, (start + walk.cumsum(1)) % NOTES], 1)


def pad_rows(x, rows):
    short = rows - x.shape[0]
    return x if short == 0 else torch.cat([x, x[:1].expand(short, -1)])


@torch.no_grad()
def validate(model, data, batch):
    model.eval()
    total = 0.0
    for i in range(0, len(data), batch):
        part = data[i:i + batch]
        keep = part.shape[0]
        part = pad_rows(part, batch)
        logits = model(part[:, :-1])[:keep]
        total += F.cross_entropy(logits.flatten(0, 1), part[:keep, 1:].flatten(), reduction="sum")
    model.train()
    return total.item() / data[:, 1:].numel()


@torch.no_grad()
def sample(model, batch, length, temperature):
    model.eval()
    ids = torch.zeros(batch, CONTEXT + 1, dtype=torch.long)
    for t in range(length - 1):
        logits = model(ids[:, :-1])[:, t] / temperature
        ids[:, t + 1] = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
    model.train()
    return ids


def main(epochs=4, batch=32, log_every=50):
    torch.manual_seed(0)
    data, val = tunes(3200, 1), tunes(150, 2)
    net = Melody()
    model = torch.compile(net, backend="aot_eager", dynamic=False)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, foreach=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=epochs * (len(data) // batch))
    step, t0, running = 0, time.time(), torch.zeros(())
    for epoch in range(epochs):
        order = torch.randperm(len(data))
        for i in range(0, len(data) - batch + 1, batch):
            ids = data[order[i:i + batch]]
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            running += loss.detach()
            step += 1
            if step % log_every == 0:
                print(f"step {step} loss {running.item() / log_every:.4f} {time.time() - t0:.1f}s", flush=True)
                running.zero_()
        print(f"epoch {epoch} val {validate(model, val, batch):.4f}", flush=True)
    for temperature in (0.7, 1.0):
        out = sample(model, batch, 24, temperature)
        print(f"temperature {temperature}: {out[0, :24].tolist()}")
    torch.save(net.state_dict(), "/tmp/melody.pt")


if __name__ == "__main__":
    main()
