"""Two-tower retrieval with a user-history encoder (GRU4Rec-like sessions), in-batch softmax."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_sessions(n_users, n_items, n_topics, seed=0):
    rng = random.Random(seed)
    topic_of = [rng.randrange(n_topics) for _ in range(n_items)]
    by_topic = [[i for i in range(1, n_items) if topic_of[i] == t] for t in range(n_topics)]
    sessions = []
    for _ in range(n_users):
        taste = rng.sample(range(n_topics), 2)
        length = min(64, 6 + int(rng.expovariate(1 / 14)))
        sessions.append([rng.choice(by_topic[rng.choice(taste)]) for _ in range(length)])
    return sessions


def collate(batch):
    """Left-pad histories; the last item of each session is the target."""
    width = max(len(s) for s in batch) - 1
    hist = torch.zeros(len(batch), width, dtype=torch.long)
    for row, s in enumerate(batch):
        hist[row, width - len(s) + 1:] = torch.tensor(s[:-1])
    target = torch.tensor([s[-1] for s in batch])
    return hist, target


class UserTower(nn.Module):
    def __init__(self, items: nn.Embedding, dim, layers=2, heads=4):
        super().__init__()
        self.items = items
        self.pos = nn.Embedding(64, dim)
        self.q = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(layers))
        self.o = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.ff = nn.ModuleList(nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
                                for _ in range(layers))
        self.n1 = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.n2 = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.heads = heads

    def forward(self, hist):
        b, t = hist.shape
        keep = hist.ne(0)
        x = self.items(hist) + self.pos(torch.arange(t - 1, -1, -1))
        bias = torch.zeros(b, 1, 1, t).masked_fill(~keep[:, None, None, :], -1e4)
        for q, o, ff, n1, n2 in zip(self.q, self.o, self.ff, self.n1, self.n2):
            qkv = q(n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            att = (qkv[0] @ qkv[1].transpose(-1, -2)) * qkv[0].shape[-1] ** -0.5 + bias
            x = x + o((att.softmax(-1) @ qkv[2]).transpose(1, 2).reshape(b, t, -1))
            x = x + ff(n2(x))
        w = keep.float().unsqueeze(-1)
        return (x * w).sum(1) / w.sum(1).clamp(min=1)


class TwoTower(nn.Module):
    def __init__(self, n_items, dim):
        super().__init__()
        self.items = nn.Embedding(n_items, dim, padding_idx=0)
        self.user = UserTower(self.items, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, hist, target):
        u = F.normalize(self.user(hist), dim=-1)
        v = F.normalize(self.out(self.items(target)), dim=-1)
        return u @ v.T / 0.1


def recall_at(model, sessions, k=20, batch=128):
    hits = 0
    with torch.no_grad():
        v = F.normalize(model.out(model.items.weight), dim=-1)
        for i in range(0, len(sessions), batch):
            hist, target = collate(sessions[i:i + batch])
            top = (F.normalize(model.user(hist), dim=-1) @ v.T).topk(k).indices
            hits += (top == target[:, None]).any(1).sum().item()
    return hits / len(sessions)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=1500)
    ap.add_argument("--items", type=int, default=500)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(0)
    sessions = make_sessions(args.users, args.items, 20)
    train, test = sessions[:-256], sessions[-256:]
    model = TwoTower(args.items, 48)
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    # symbolic shapes gave us slower kernels than static ones
    step_model = torch.compile(model, dynamic=False, backend="aot_eager")
    rng = random.Random(1)
    for epoch in range(args.epochs):
        rng.shuffle(train)
        t0, total, n = time.time(), torch.zeros(()), 0
        for i in range(0, len(train) - args.batch + 1, args.batch):
            hist, target = collate(train[i:i + args.batch])
            logits = step_model(hist, target)
            loss = F.cross_entropy(logits, torch.arange(len(target)))
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
            n += 1
        print(f"epoch {epoch} loss {total.item() / n:.3f} recall@20 {recall_at(model, test):.3f} "
              f"({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
