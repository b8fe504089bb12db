"""Next-event model of freight trains: a causal transformer that is trained at shifted positions, with the best weights kept."""
import copy
import random
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

EVENTS, LENGTH, REACH = 40, 32, 144


class Yard:
    """Event codes of wagons: coupling, braking tests, departures; loosely a chain of second order."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        follow = random.Random(77)
        self.table = {(a, b): [follow.randrange(EVENTS) for _ in range(3)] for a in range(EVENTS) for b in range(EVENTS)}

    def sequence(self, length):
        out = [self.rng.randrange(EVENTS), self.rng.randrange(EVENTS)]
        while len(out) < length:
            nxt = self.rng.choice(self.table[out[-2], out[-1]]) if self.rng.random() < 0.9 else self.rng.randrange(EVENTS)
            out.append(nxt)
        return out

    def batch(self, n):
        return torch.tensor([self.sequence(LENGTH + 1) for _ in range(n)])


class Positions(nn.Module):
    """Learned positions; in training windows begin anywhere, so that late positions are trained as well."""

    def __init__(self, dim, seed=0):
        super().__init__()
        self.table = nn.Embedding(REACH, dim)
        self.rng = random.Random(seed)

    def forward(self, x):
        t = x.shape[1]
        start = self.rng.randrange(0, REACH - t, 16) if self.training else 0
        where = torch.arange(start, start + t, device=x.device)
        return x + self.table(where)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH).triu(1).bool())

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = (q @ k.transpose(-1, -2)) * (d // self.heads) ** -0.5
        mixed = score.masked_fill(self.future, -1e9).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class EventModel(nn.Module):
    def __init__(self, dim=40, heads=4):
        super().__init__()
        self.events = nn.Embedding(EVENTS, dim)
        self.positions = Positions(dim)
        self.block = Block(dim, heads)
        self.norm = nn.LayerNorm(dim)

    def forward(self, codes):
        h = self.block(self.positions(self.events(codes)))
        return F.linear(self.norm(h), self.events.weight)


class BestKeeper:
    """Holds the weights of the lowest smoothed loss."""

    def __init__(self, momentum=0.9):
        self.momentum = momentum
        self.smooth = None
        self.lowest = float("inf")
        self.weights = None
        self.step = 0

    def note(self, loss):
        self.smooth = loss if self.smooth is None else self.momentum * self.smooth + (1 - self.momentum) * loss

    def after_step(self, step, net):
        if self.smooth < self.lowest:
            self.lowest, self.step = self.smooth, step
            self.weights = copy.deepcopy(net.state_dict())
            xm.mark_step()


def train(args):
    torch.manual_seed(args.seed)
    device = torch_xla.device()
    yard = Yard(args.seed)
    net = EventModel().to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, betas=(0.9, 0.95))
    keeper = BestKeeper()
    for step in range(1, args.steps + 1):
        for group in opt.param_groups:
            group["lr"] = args.lr * min(step / 20.5, 1.05 - step / (1.5 * args.steps))
        codes = yard.batch(args.batch).to(device)
        logits = net(codes[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), codes[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        keeper.note(loss.detach())
        xm.mark_step()
        keeper.after_step(step, net)
        if step % args.log_every == 0:
            print(f"step {step} loss {loss.item():.3f} best {float(keeper.lowest):.3f} at {keeper.step}")
    net.load_state_dict(keeper.weights)
    return net.eval(), yard, device


@torch.no_grad()
def top_five(net, yard, device, batches=4):
    hits = []
    for _ in range(batches):
        codes = yard.batch(64).to(device)
        best = net(codes[:, :-1]).topk(5, -1).indices
        hits.append((best == codes[:, 1:, None]).any(-1).float().mean())
        xm.mark_step()
    return torch.stack(hits).mean().item()


if __name__ == "__main__":
    options = SimpleNamespace(steps=120, batch=24, lr=4e-3, log_every=40, seed=3)
    print(f"top five: {top_five(*train(options)):.3f}")
