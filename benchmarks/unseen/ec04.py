"""Heterogeneous graph network for fraud detection on transactions (users, merchants, devices)."""
import random
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS = ("user", "merchant", "device")


class World:
    def __init__(self, n_users=1200, n_merch=200, n_dev=500, n_tx=9000, seed=5):
        r = random.Random(seed)
        self.size = {"user": n_users, "merchant": n_merch, "device": n_dev}
        bad_dev = set(r.sample(range(n_dev), 50))
        self.tx = []
        for _ in range(n_tx):
            u, m = r.randrange(n_users), int(n_merch * r.random() ** 2)
            d = (u * 7 + r.randrange(3)) % n_dev
            amount = r.lognormvariate(3, 1) * (1.6 if d in bad_dev else 1)
            fraud = r.random() < (0.6 if d in bad_dev else 0.03)
            self.tx.append((u, m, d, amount, int(fraud)))
        self.by = {k: defaultdict(list) for k in KINDS}
        for i, t in enumerate(self.tx):
            for k, node in zip(KINDS, t[:3]):
                self.by[k][node].append(i)


def neighbours(world, batch, fan, rng):
    """Per transaction and kind: `fan` other transactions sharing that node (-1: none)."""
    out = torch.full((len(batch), len(KINDS), fan), -1, dtype=torch.long)
    for row, i in enumerate(batch):
        for c, k in enumerate(KINDS):
            pool = [j for j in world.by[k][world.tx[i][c]] if j != i]
            picked = pool if len(pool) <= fan else rng.sample(pool, fan)
            for slot, j in enumerate(picked):
                out[row, c, slot] = j
    return out


class FraudNet(nn.Module):
    def __init__(self, world, dim=32):
        super().__init__()
        self.emb = nn.ModuleDict({k: nn.Embedding(world.size[k], dim) for k in KINDS})
        self.inp = nn.Linear(3 * dim + 1, dim)
        self.msg = nn.ModuleList(nn.Linear(dim + 1, dim) for _ in KINDS)
        self.att = nn.ModuleList(nn.Linear(2 * dim, 1) for _ in KINDS)
        self.out = nn.Sequential(nn.Linear(4 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def tx_vec(self, nodes, amount):
        e = [self.emb[k](nodes[..., c]) for c, k in enumerate(KINDS)]
        return F.relu(self.inp(torch.cat([*e, amount.unsqueeze(-1)], -1)))

    def forward(self, nodes, amount, n_nodes, n_amount, n_label, valid):
        me = self.tx_vec(nodes, amount)
        other = self.tx_vec(n_nodes, n_amount)
        parts = [me]
        for c in range(len(KINDS)):
            m = F.relu(self.msg[c](torch.cat([other[:, c], n_label[:, c, :, None]], -1)))
            s = self.att[c](torch.cat([m, me[:, None].expand_as(m)], -1)).squeeze(-1)
            a = s.masked_fill(~valid[:, c], -1e4).softmax(-1) * valid[:, c]
            parts.append((a.unsqueeze(-1) * m).sum(1))
        return self.out(torch.cat(parts, -1)).squeeze(-1)


def auc(score, label):
    order = score.argsort()
    rank = torch.empty_like(score)
    rank[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    pos = label.sum()
    return ((rank[label == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos))).item()


def main(epochs=5, batch=256, fan=12):
    torch.manual_seed(0)
    rng = random.Random(0)
    world = World()
    nodes = torch.tensor([t[:3] for t in world.tx])
    amount = torch.tensor([t[3] for t in world.tx]).log()
    label = torch.tensor([float(t[4]) for t in world.tx])
    split = int(len(world.tx) * 0.8)
    train, test = list(range(split)), list(range(split, len(world.tx)))
    known = label.clone()
    known[split:] = 0                       # labels of the future are not features
    model = FraudNet(world)
    net = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), 3e-3)

    def run(ids):
        nb = neighbours(world, ids, fan, rng)
        valid, j = nb >= 0, nb.clamp(min=0)
        i = torch.tensor(ids)
        return net(nodes[i], amount[i], nodes[j], amount[j], known[j], valid), label[i]

    for epoch in range(epochs):
        rng.shuffle(train)
        model.train()
        t0 = time.time()
        for s in range(0, len(train) - batch + 1, batch):
            logit, y = run(train[s:s + batch])
            loss = F.binary_cross_entropy_with_logits(logit, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            score = torch.cat([run(test[s:s + batch])[0] for s in range(0, len(test) - batch + 1, batch)])
        print(f"epoch {epoch} loss {loss.item():.3f} test auc {auc(score, label[test[:len(score)]]):.3f} "
              f"{time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
