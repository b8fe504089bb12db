"""A small sequence-to-sequence model that learns to reverse strings, then beam search over a test set."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB, SOURCE, LIMIT = 20, 14, 18


def make_batch(n, generator):
    source = torch.full((n, SOURCE), PAD)
    target = torch.full((n, SOURCE + 2), PAD)
    for i, length in enumerate(torch.randint(6, SOURCE + 1, (n,), generator=generator).tolist()):
        word = torch.randint(FIRST, VOCAB, (length,), generator=generator)
        source[i, :length] = word
        target[i, : length + 2] = torch.cat([torch.tensor([BOS]), word.flip(0), torch.tensor([EOS])])
    return source, target


class Decoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.cross_q, self.cross_kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, memory, memory_mask, cache=None):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(a)
        mk, mv = self.cross_kv(memory).chunk(2, -1)
        x = x + F.scaled_dot_product_attention(self.cross_q(x), mk, mv, attn_mask=memory_mask[:, None])
        return x + self.mlp(x), (k, v)


class Reverser(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, dim), nn.Embedding(LIMIT + 2, dim)
        self.encoder = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.decoder = Decoder(dim)
        self.head = nn.Linear(dim, VOCAB)

    def encode(self, source):
        x = self.tokens(source) + self.places(torch.arange(source.shape[1], device=source.device))
        return x + self.encoder(x), source != PAD

    def forward(self, source, target):
        memory, mask = self.encode(source)
        x = self.tokens(target) + self.places(torch.arange(target.shape[1], device=target.device))
        x, _ = self.decoder(x, memory, mask)
        return self.head(x)

    def step(self, token, place, memory, mask, cache):
        x = self.tokens(token).unsqueeze(1) + self.places(place)
        x, cache = self.decoder(x, memory, mask, cache)
        return self.head(x[:, 0]).log_softmax(-1), cache


@torch.no_grad()
def beam_search(model, source, width):
    n, device = len(source), source.device
    memory, mask = model.encode(source.repeat_interleave(width, 0))
    scores = torch.full((n, width), -1e9, device=device)
    scores[:, 0] = 0
    token = torch.full((n * width,), BOS, device=device)
    finished = torch.zeros(n, width, dtype=torch.bool, device=device)
    written = torch.full((n, width, LIMIT), PAD, device=device)
    place = torch.zeros((), dtype=torch.long, device=device)
    columns = torch.arange(LIMIT, device=device)
    only_pad = torch.full((VOCAB,), -1e9, device=device)
    only_pad[PAD] = 0
    empty = memory.new_zeros(n * width, 0, memory.shape[-1])
    cache = (empty, empty)
    for _ in range(LIMIT):
        log_prob, cache = model.step(token, place, memory, mask, cache)
        log_prob = torch.where(finished.view(-1, 1), only_pad, log_prob).view(n, width, VOCAB)
        scores, best = (scores.unsqueeze(-1) + log_prob).view(n, -1).topk(width)
        parent, choice = best // VOCAB, best % VOCAB
        rows = (torch.arange(n, device=device)[:, None] * width + parent).view(-1)
        cache = tuple(c[rows] for c in cache)
        written = torch.where(columns == place, choice.unsqueeze(-1), written.view(n * width, -1)[rows].view(n, width, -1))
        finished = finished.view(-1)[rows].view(n, width) | (choice == EOS)
        token, place = choice.view(-1), place + 1
        xm.mark_step()
        if finished.all():
            break
    return written[:, 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--beam", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    device = xm.xla_device()
    model = Reverser().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(args.steps):
        source, target = (x.to(device) for x in make_batch(args.batch_size, generator))
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    right, start = [], time.time()
    for _ in range(3):
        source, target = make_batch(16, generator)
        hypotheses = beam_search(model, source.to(device), args.beam).cpu()
        reference = F.pad(target[:, 1:], (0, LIMIT - target.shape[1] + 1))
        right.append((hypotheses == reference)[reference != PAD].float().mean())
    print(f"beam search: {torch.stack(right).mean():.3f} of the tokens, {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
