"""Mixture-of-experts text classifier for support tickets in bf16; two length buckets, fixed expert capacity."""
import random
import torch
from torch import nn
import torch.nn.functional as F
import torch_xla

VOCAB, QUEUES, DIM = 800, 8, 48
BUCKETS = (16, 32)


class Experts(nn.Module):
    """Every expert takes its `capacity` best tokens (expert choice), so all shapes are fixed per bucket."""

    def __init__(self, dim, n=4, share=0.5):
        super().__init__()
        self.route = nn.Linear(dim, n)
        self.w1 = nn.Parameter(torch.randn(n, dim, 2 * dim) * dim ** -0.5)
        self.w2 = nn.Parameter(torch.randn(n, 2 * dim, dim) * (2 * dim) ** -0.5)
        self.share = share

    def forward(self, x):
        b, t, d = x.shape
        cap = int(t * self.share)
        gate = self.route(x).softmax(-1).transpose(1, 2)           # b, n, t
        top, where = gate.topk(cap, -1)
        pick = F.one_hot(where, t).to(x.dtype)                      # b, n, cap, t
        chosen = pick @ x[:, None]
        y = F.gelu(torch.einsum("bncd,ndh->bnch", chosen, self.w1))
        y = torch.einsum("bnch,nhd->bncd", y, self.w2) * top[..., None].to(x.dtype)
        return x + (pick.transpose(2, 3) @ y).sum(1)


class TicketNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM, padding_idx=0)
        self.norm = nn.LayerNorm(DIM)
        self.moe = Experts(DIM)
        self.head = nn.Linear(DIM, QUEUES)

    def forward(self, ids):
        keep = (ids != 0).unsqueeze(-1)
        h = self.moe(self.norm(self.emb(ids)))
        return self.head((h * keep).sum(1) / keep.sum(1).clamp(min=1))


class Tickets:
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.rows = {b: [] for b in BUCKETS}
        for _ in range(n):
            q = rnd.randrange(QUEUES)
            length = rnd.randint(6, BUCKETS[-1])
            words = [rnd.randrange(1 + q * 90, 1 + q * 90 + 120) if rnd.random() < 0.5 else rnd.randrange(1, VOCAB)
                     for _ in range(length)]
            bucket = next(b for b in BUCKETS if length <= b)
            self.rows[bucket].append((words + [0] * (bucket - length), q))
        self.rnd = rnd

    def epoch(self, size):
        batches = []
        for rows in self.rows.values():
            self.rnd.shuffle(rows)
            batches += [rows[i:i + size] for i in range(0, len(rows) - size + 1, size)]  # drops the rest
        self.rnd.shuffle(batches)
        for rows in batches:
            words, queues = zip(*rows)
            yield torch.tensor(words), torch.tensor(queues)


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = TicketNet().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    tickets = Tickets(2000, seed=4)
    for epoch in range(4):
        notes = []
        for ids, queue in tickets.epoch(32):
            ids, queue = ids.to(device), queue.to(device)
            with torch.autocast("xla", dtype=torch.bfloat16):
                logits = model(ids)
            loss = F.cross_entropy(logits.float(), queue)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right = (logits.detach().argmax(-1) == queue).float().mean()
            notes.append(torch.stack([loss.detach(), right]))
            torch_xla.sync()
        mean_loss, acc = torch.stack(notes).mean(0).tolist()
        print(f"epoch {epoch} loss {mean_loss:.3f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
