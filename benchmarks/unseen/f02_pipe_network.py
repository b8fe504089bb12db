"""Leak localisation in water pipe networks: message passing on batches of random district graphs."""
import random
import torch
from torch import nn
import torch_xla
import torch_xla.core.xla_model as xm

N_JUNCTIONS = 24      # every district is padded to this many junctions
FEATS = 6
HIDDEN = 48


class District:
    def __init__(self, rnd: random.Random):
        self.n = rnd.randint(14, N_JUNCTIONS)
        pipes = [(i, rnd.randrange(i)) for i in range(1, self.n)]
        for _ in range(rnd.randint(2, 10)):
            a, b = rnd.sample(range(self.n), 2)
            pipes.append((a, b))
        self.pipes = pipes
        self.x = torch.randn(self.n, FEATS)
        self.leak = rnd.randrange(self.n)
        self.x[self.leak, 0] -= 3.0
        for a, b in pipes:
            if a == self.leak or b == self.leak:
                other = b if a == self.leak else a
                self.x[other, 0] -= 1.0


class Loader:
    """Batches of equal node count; unused junctions carry zeros and are masked."""

    def __init__(self, districts, per_batch, seed):
        self.districts, self.per_batch = districts, per_batch
        self.rnd = random.Random(seed)

    def pack(self, chosen):
        b = len(chosen)
        x = torch.zeros(b * N_JUNCTIONS, FEATS)
        valid = torch.zeros(b, N_JUNCTIONS, dtype=torch.bool)
        src, dst = [], []
        for g, d in enumerate(chosen):
            base = g * N_JUNCTIONS
            x[base:base + d.n] = d.x
            valid[g, :d.n] = True
            for a, c in d.pipes:
                src += [base + a, base + c]
                dst += [base + c, base + a]
        links = torch.tensor([src, dst])
        target = torch.tensor([d.leak for d in chosen])
        return x, links, valid, target

    def __iter__(self):
        order = self.groups()
        self.rnd.shuffle(order)
        for group in order:
            yield self.pack(group)

    def groups(self):
        k = self.per_batch
        n = len(self.districts) // k * k
        return [self.districts[i:i + k] for i in range(0, n, k)]


class Passing(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * h, h), nn.SiLU(), nn.Linear(h, h))
        self.upd = nn.GRUCell(h, h)

    def forward(self, h, links):
        s, d = links[0], links[1]
        m = self.msg(torch.cat([h.index_select(0, s), h.index_select(0, d)], -1))
        agg = torch.zeros_like(h).index_add(0, d, m)
        return self.upd(agg, h)


class LeakFinder(nn.Module):
    def __init__(self, rounds=2):
        super().__init__()
        self.inp = nn.Linear(FEATS, HIDDEN)
        self.rounds = nn.ModuleList(Passing(HIDDEN) for _ in range(rounds))
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, x, links, valid):
        h = torch.tanh(self.inp(x))
        for r in self.rounds:
            h = r(h, links)
        score = self.out(h).view(valid.shape)
        return score.masked_fill(~valid, -1e9)


def run():
    torch.manual_seed(3)
    rnd = random.Random(3)
    device = xm.xla_device()
    loader = Loader([District(rnd) for _ in range(36)], per_batch=6, seed=1)
    model = LeakFinder().to(device)
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    ce = nn.CrossEntropyLoss()
    for epoch in range(22):
        running = torch.zeros((), device=device)
        hits = torch.zeros((), device=device)
        batches = 0
        for batch in loader:
            x, links, valid, target = [t.to(device) for t in batch]
            optim.zero_grad()
            scores = model(x, links, valid)
            loss = ce(scores, target)
            loss.backward()
            optim.step()
            running += loss.detach()
            hits += (scores.argmax(-1) == target).float().mean()
            batches += 1
            xm.mark_step()
        print(f"epoch {epoch:2d} loss {running.item() / batches:.3f} acc {hits.item() / batches:.3f}")


if __name__ == "__main__":
    run()
