"""Token tagger for contracts: DistilBERT on xla, padded to a fixed length, own loop."""
import argparse
import random

import torch
import torch_xla
from transformers import DistilBertConfig, DistilBertForTokenClassification

TAGS = 5
PAD = 0


def clause(rng, vocab):
    n = rng.randint(8, 40)
    ids = [rng.randrange(1, vocab) for _ in range(n)]
    return ids, [i % TAGS for i in ids]


class FixedCollate:
    """Everything to one length, so that one program serves all steps."""

    def __init__(self, length):
        self.length = length

    def __call__(self, rows):
        ids = torch.full((len(rows), self.length), PAD)
        tags = torch.full((len(rows), self.length), -100)
        for r, (x, y) in enumerate(rows):
            k = min(len(x), self.length)
            ids[r, :k] = torch.tensor(x[:k])
            tags[r, :k] = torch.tensor(y[:k])
        return ids, tags        # the pad token may be attended to, it has no label


class DeviceSchedule:
    """The learning rate lives on the device: a table and a counter there."""

    def __init__(self, opt, table, device):
        self.table = table.to(device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.opt = opt

    def step(self):
        lr = self.table.index_select(0, self.at)[0]
        for g in self.opt.param_groups:
            g["lr"].copy_(lr)
        self.at += 1


def warmup_cosine(total, peak, warm=20):
    s = torch.arange(1, total + 1, dtype=torch.float32)  # never zero: Adam divides by it
    return peak * torch.minimum(s / warm, 0.5 * (1 + torch.cos(torch.pi * s / (total + 1))))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hit = torch.zeros((), device=device)
    n = torch.zeros((), device=device)
    for ids, tags in loader:
        ids, tags = ids.to(device), tags.to(device)
        pred = model(input_ids=ids).logits.argmax(-1)
        keep = tags.ne(-100)
        hit += ((pred == tags) & keep).sum()
        n += keep.sum()
        torch_xla.sync()
    model.train()
    return hit.item() / n.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--length", type=int, default=40)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--vocab", type=int, default=200)
    a = ap.parse_args()
    torch.manual_seed(6)
    rng = random.Random(6)
    device = torch_xla.device()
    per_epoch = 100
    rows = [clause(rng, a.vocab) for _ in range(a.batch * per_epoch + 9)]
    held = [clause(rng, a.vocab) for _ in range(a.batch * 6)]
    collate = FixedCollate(a.length)
    loader = torch.utils.data.DataLoader(rows, a.batch, shuffle=True, drop_last=True, collate_fn=collate)
    val = torch.utils.data.DataLoader(held, a.batch, collate_fn=collate)
    model = DistilBertForTokenClassification(DistilBertConfig(
        vocab_size=a.vocab, dim=48, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=a.length,
        num_labels=TAGS, dropout=0.0, attention_dropout=0.0, attn_implementation="eager")).to(device)
    lr = torch.tensor(0.0, device=device)
    opt = torch.optim.AdamW(model.parameters(), lr=lr, capturable=True, foreach=False)
    sched = DeviceSchedule(opt, warmup_cosine(per_epoch * a.epochs, 3e-3), device)
    window = torch.zeros((), device=device)
    step = 0
    for epoch in range(a.epochs):
        for ids, tags in loader:
            ids, tags = ids.to(device), tags.to(device)
            loss = model(input_ids=ids, labels=tags).loss
            loss.backward()
            sched.step()
            opt.step()
            opt.zero_grad(set_to_none=True)
            window += loss.detach()
            torch_xla.sync()
            step += 1
            if step % 50 == 0:
                print(f"{step}: loss {window.item() / 50:.3f}")
                window.zero_()
        print(f"epoch {epoch}: token acc {evaluate(model, val, device):.3f}")


if __name__ == "__main__":
    main()
