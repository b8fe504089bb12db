"""Child-sum Tree-LSTM (Tai et al. 2015) that values arithmetic parse trees.

Trees are n-ary (a sum may have many terms). All trees of a batch are processed
together, level by level; the cell is compiled because it dominates the profile.
"""
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

OPS = ["+", "*", "max", "min"]
VOCAB = {tok: i for i, tok in enumerate(OPS + [str(d) for d in range(10)])}
DIM, BATCH = 64, 24


class Node:
    def __init__(self, token, children=()):
        self.token, self.children = token, list(children)
        self.height = 1 + max((c.height for c in self.children), default=-1)
        self.slot = None

    def value(self):
        if not self.children:
            return int(self.token) / 10
        vals = [c.value() for c in self.children]
        if self.token == "+":
            return sum(vals) / len(vals)
        if self.token == "*":
            out = 1.0
            for v in vals:
                out *= v
            return out
        return max(vals) if self.token == "max" else min(vals)

    def walk(self):
        for c in self.children:
            yield from c.walk()
        yield self


def grow(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return Node(str(rng.randrange(10)))
    return Node(rng.choice(OPS), [grow(rng, depth - 1) for _ in range(rng.randint(2, 5))])


class ChildSumCell(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.wx = nn.Linear(dim, 4 * dim)
        self.uh = nn.Linear(dim, 3 * dim, bias=False)
        self.uf = nn.Linear(dim, dim, bias=False)

    def forward(self, x, child_h, child_c, parent):
        n = x.shape[0]
        i, o, u, f = self.wx(x).chunk(4, 1)
        h_sum = x.new_zeros(n, DIM).index_add(0, parent, child_h)
        di, do, du = self.uh(h_sum).chunk(3, 1)
        forget = torch.sigmoid(f[parent] + self.uf(child_h))
        c = torch.sigmoid(i + di) * torch.tanh(u + du)
        c = c.index_add(0, parent, forget * child_c)
        return torch.sigmoid(o + do) * torch.tanh(c), c


class LeafCell(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        i, o, u = self.w(x).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c


class TreeLSTM(nn.Module):
    def __init__(self, dim=DIM):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB), dim)
        self.leaf = torch.compile(LeafCell(dim), backend="aot_eager", dynamic=True)
        self.cell = torch.compile(ChildSumCell(dim), backend="aot_eager", dynamic=True)
        self.value = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, trees):
        levels = {}
        for tree in trees:
            for node in tree.walk():
                levels.setdefault(node.height, []).append(node)
        hs, cs = [], []
        for height in sorted(levels):
            nodes = levels[height]
            x = self.embed(torch.tensor([VOCAB[n.token] for n in nodes]))
            if height == 0:
                h, c = self.leaf(x)
            else:
                kids = [k for n in nodes for k in n.children]
                parent = torch.tensor([p for p, n in enumerate(nodes) for _ in n.children])
                child_h = torch.stack([hs[k.slot[0]][k.slot[1]] for k in kids])
                child_c = torch.stack([cs[k.slot[0]][k.slot[1]] for k in kids])
                h, c = self.cell(x, child_h, child_c, parent)
            hs.append(h)
            cs.append(c)
            for row, node in enumerate(nodes):
                node.slot = (height, row)
        roots = torch.stack([hs[t.slot[0]][t.slot[1]] for t in trees])
        return self.value(roots).squeeze(1)


def main():
    rng = random.Random(3)
    torch.manual_seed(3)
    trees = [Node("+", [grow(rng, 4) for _ in range(2)]) for _ in range(96)]
    target = torch.tensor([t.value() for t in trees])
    print("trees", len(trees), "nodes", sum(1 for t in trees for _ in t.walk()))

    model = TreeLSTM()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    start = time.time()
    for epoch in range(4):
        order = list(range(len(trees)))
        rng.shuffle(order)
        total = torch.zeros(())
        for lo in range(0, len(order), BATCH):
            idx = order[lo:lo + BATCH]
            loss = F.mse_loss(model([trees[i] for i in idx]), target[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            total += loss.detach()
        print(f"epoch {epoch} rmse {(total / (len(order) / BATCH)).sqrt().item():.4f} ({time.time() - start:.0f}s)", flush=True)


if __name__ == "__main__":
    main()
