"""Character-level GRU language model; forward, backward and optimizer in one compiled step."""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = ("the quick brown fox jumps over the lazy dog while seven wizards "
        "quietly vex bold knights near a foggy quay; ") * 60


class Corpus:
    def __init__(self, text, block):
        chars = sorted(set(text))
        table = {c: i for i, c in enumerate(chars)}
        self.vocab = len(chars)
        self.ids = torch.tensor([table[c] for c in text])
        self.block = block

    def batch(self, n, g):
        start = torch.randint(0, len(self.ids) - self.block - 1, (n,), generator=g)
        idx = start[:, None] + torch.arange(self.block)
        return self.ids[idx], self.ids[idx + 1]


class MixerLM(nn.Module):
    """Causal convolution mixer: cheap on a CPU, no recurrence."""

    def __init__(self, vocab, width=48, depth=3, kernel=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, 2 * width, kernel) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.pad = kernel - 1
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        h = self.embed(ids)
        for conv, norm in zip(self.convs, self.norms):
            u = F.pad(norm(h).transpose(1, 2), (self.pad, 0))
            h = h + F.glu(conv(u), dim=1).transpose(1, 2)
        return self.head(h)


class LionW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.05):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["m"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd = group["lr"], group["weight_decay"]
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p]["m"]
                p.mul_(1 - lr * wd)
                p.sub_(lr * torch.sign(b1 * m + (1 - b1) * p.grad))
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class OneCycle:
    def __init__(self, opt, peak, total, warm):
        self.opt, self.peak, self.total, self.warm = opt, peak, total, warm

    def value(self, step):
        if step < self.warm:
            return self.peak * (step + 1) / self.warm
        return self.peak * 0.5 * (1 + math.cos(math.pi * (step - self.warm) / (self.total - self.warm)))

    def set(self, step):
        for group in self.opt.param_groups:
            group["lr"] = self.value(step)


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    corpus = Corpus(TEXT, 48)
    model = MixerLM(corpus.vocab)
    opt = LionW(model.parameters())
    cycle = OneCycle(opt, peak=2e-3, total=200, warm=20)
    forward = torch.compile(model, backend="aot_eager")
    apply_update = torch.compile(opt.step, backend="aot_eager")
    begin = time.perf_counter()
    for step in range(200):
        x, y = corpus.batch(16, g)
        cycle.set(step)
        logits = forward(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        apply_update()
        opt.zero_grad()
        if step % 50 == 0:
            bits = loss.item() / math.log(2)
            print(f"{step:4d} bits/char {bits:.3f} {time.perf_counter() - begin:.1f}s", flush=True)
    with torch.no_grad():
        x, y = corpus.batch(64, g)
        print("accuracy", round((model(x).argmax(-1) == y).float().mean().item(), 3))


if __name__ == "__main__":
    main()
