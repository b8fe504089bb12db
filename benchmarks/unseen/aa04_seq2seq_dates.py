"""Character seq2seq (GRU with attention) that normalises toy date strings."""
import random

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, PAD, BOS, EOS = 24, 0, 1, 2
SRC_LEN, TGT_LEN = 10, 6


def make_batch(n, rng):
    src = torch.tensor([[rng.randint(3, VOCAB - 1) for _ in range(SRC_LEN)] for _ in range(n)])
    tgt = src.flip(1)[:, :TGT_LEN - 1].clone()
    for row in tgt:
        stop = rng.randint(2, TGT_LEN - 1)
        row[stop:] = PAD
    tgt = torch.cat([tgt, torch.full((n, 1), PAD)], 1)
    ends = (tgt != PAD).sum(1)
    tgt[torch.arange(n), ends] = EOS
    return src, tgt


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        self.pos = nn.Parameter(torch.randn(SRC_LEN, dim) * 0.1)

    def forward(self, src):
        x = self.emb(src) + self.pos
        return x + torch.relu(self.mix(x.transpose(1, 2)).transpose(1, 2))


class Decoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.cell = nn.GRUCell(dim * 2, dim)
        self.out = nn.Linear(dim * 2, VOCAB)

    def step(self, token, state, memory):
        att = torch.softmax((memory @ state.unsqueeze(-1)).squeeze(-1), -1)
        ctx = (att.unsqueeze(1) @ memory).squeeze(1)
        state = self.cell(torch.cat([self.emb(token), ctx], -1), state)
        return self.out(torch.cat([state, ctx], -1)), state


class Seq2Seq(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.encoder, self.decoder = Encoder(dim), Decoder(dim)

    def forward(self, src, tgt, forcing):
        memory = self.encoder(src)
        state = memory.mean(1)
        token = torch.full_like(src[:, 0], BOS)
        logits = []
        for t in range(tgt.shape[1]):
            step_logits, state = self.decoder.step(token, state, memory)
            logits.append(step_logits)
            if random.random() < forcing:
                token = tgt[:, t]
            else:
                token = step_logits.detach().argmax(-1)
        return torch.stack(logits, 1)

    @torch.no_grad()
    def translate(self, src, max_len=TGT_LEN):
        memory = self.encoder(src)
        state = memory.mean(1)
        token = torch.full_like(src[:, 0], BOS)
        outputs = []
        for _ in range(max_len):
            logits, state = self.decoder.step(token, state, memory)
            token = logits.argmax(-1)
            outputs.append(token)
            xm.mark_step()
        return torch.stack(outputs, 1)


def accuracy(model, batches, device):
    model.eval()
    hits = total = 0
    for src, tgt in batches:
        pred = model.translate(src.to(device)).cpu()
        mask = tgt != PAD
        hits += int(((pred == tgt) & mask).sum())
        total += int(mask.sum())
    model.train()
    return hits / total


def train(model, steps, device, rng, log_every=15):
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    recent = torch.zeros((), device=device)
    for step in range(1, steps + 1):
        src, tgt = make_batch(16, rng)
        src, tgt = src.to(device), tgt.to(device)
        forcing = max(0.4, 1.0 - step / steps)
        logits = model(src, tgt, forcing)
        loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()
        recent += loss.detach()
        xm.mark_step()
        if step % log_every == 0:
            print(f"step {step:3d} forcing {forcing:.2f} loss {recent.item() / log_every:.3f}", flush=True)
            recent = torch.zeros((), device=device)


def main():
    rng = random.Random(5)
    random.seed(7)
    torch.manual_seed(7)
    device = xm.xla_device()
    model = Seq2Seq().to(device)
    held_out = [make_batch(16, rng) for _ in range(4)]
    train(model, 9, device, rng, log_every=3)
    print("held-out accuracy", round(accuracy(model, held_out, device), 3))


if __name__ == "__main__":
    main()
