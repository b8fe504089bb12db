"""Will a patient be readmitted? A set model over the events of a stay, trained with Accelerate on an XLA device."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla  # noqa: F401
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

CODES = 90


class Stays(Dataset):
    """Each stay is a list of (code, hours since admission); some codes raise the risk."""

    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.stays = []
        for _ in range(count):
            size = min(48, 4 + int(rng.lognormvariate(2.3, 0.55)))
            codes = [rng.randrange(1, CODES) for _ in range(size)]
            hours = sorted(rng.uniform(0, 96) for _ in range(size))
            risk = sum(c % 7 == 0 for c in codes) / size * 6 - 1 + rng.gauss(0, 0.3)
            self.stays.append((codes, hours, float(risk > 0)))

    def __len__(self):
        return len(self.stays)

    def __getitem__(self, index):
        return self.stays[index]


def collate(stays):
    """Pads with code 0, in blocks of four events."""
    width = -(-max(len(codes) for codes, _, _ in stays) // 4) * 4
    codes = torch.zeros(len(stays), width, dtype=torch.long)
    hours = torch.zeros(len(stays), width)
    for row, (c, h, _) in enumerate(stays):
        codes[row, : len(c)] = torch.tensor(c)
        hours[row, : len(h)] = torch.tensor(h) / 96
    return {"codes": codes, "hours": hours, "readmitted": torch.tensor([y for _, _, y in stays])}


class StayEncoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.code = nn.Embedding(CODES, width, padding_idx=0)
        self.hour = nn.Linear(1, width)
        self.event = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.score = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, codes, hours):
        there = codes.ne(0)
        events = self.event(self.code(codes) + self.hour(hours.unsqueeze(-1)))
        weight = self.score(events).squeeze(-1).masked_fill(~there, -1e4).softmax(-1)
        return self.out((events * weight.unsqueeze(-1)).sum(1)).squeeze(-1)


class Watchdog:
    """Any process may ask all of them to stop, e.g. when its node is about to be taken away."""

    def __init__(self, accelerator, every):
        self.accelerator, self.every, self.calls = accelerator, every, 0

    def node_leaves(self):
        return False

    def should_stop(self):
        self.calls += 1
        if self.node_leaves():
            self.accelerator.set_trigger()
        return self.calls % self.every == 0 and self.accelerator.check_trigger()


class RocTally:
    """Scores and outcomes of the training set as they go by, for the area under the curve."""

    def __init__(self, accelerator):
        self.accelerator, self.scores, self.outcomes = accelerator, [], []

    def add(self, logits, outcomes):
        logits, outcomes = self.accelerator.gather_for_metrics((logits.detach(), outcomes))
        self.scores.append(logits.cpu().numpy())
        self.outcomes.append(outcomes.cpu().numpy())

    def area(self):
        scores, outcomes = np.concatenate(self.scores), np.concatenate(self.outcomes)
        ranks = scores.argsort().argsort() + 1
        positive = outcomes.sum()
        return float((ranks[outcomes > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(ranks) - positive)))


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    right = torch.zeros((), device=accelerator.device)
    seen = 0
    for batch in loader:
        logits = model(batch["codes"], batch["hours"])
        right += ((logits > 0).float() == batch["readmitted"]).sum()
        seen += logits.shape[0]
    return right.item() / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stays", type=int, default=960)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    set_seed(12)
    accelerator = Accelerator()
    train_loader = DataLoader(Stays(args.stays, 1), args.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    test_loader = DataLoader(Stays(160, 2), args.batch_size, collate_fn=collate)
    model = StayEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
    watchdog = Watchdog(accelerator, every=20)
    stop = False
    for epoch in range(args.epochs):
        model.train()
        total, tally = torch.zeros((), device=accelerator.device), RocTally(accelerator)
        for batch in train_loader:
            logits = model(batch["codes"], batch["hours"])
            loss = F.binary_cross_entropy_with_logits(logits, batch["readmitted"])
            tally.add(logits, batch["readmitted"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
            if watchdog.should_stop():
                stop = True
                break
        accuracy = evaluate(accelerator, model, test_loader)
        print(f"epoch {epoch}: loss {total.item() / len(train_loader):.3f}, area {tally.area():.3f}, test accuracy {accuracy:.3f}")
        if stop:
            break


if __name__ == "__main__":
    main()
