"""Matches perfumers' briefs with formulas in a shared space (two towers, symmetric contrastive loss), gradients accumulated."""
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

NOTES, WORDS, BRIEF, FORMULA = 60, 90, 12, 8


@dataclass
class Plan:
    updates: int = 220
    micro: int = 32
    accumulate: int = 4
    lr: float = 2e-3
    report: int = 50
    freeze_until: int = 0


class Briefs:
    """Accords are drawn from families; a brief describes the family and some of the notes in words."""

    def __init__(self, seed, families=10):
        self.g = torch.Generator().manual_seed(seed)
        self.note_logits = 2.0 * torch.randn(families, NOTES, generator=self.g)
        self.word_logits = 2.0 * torch.randn(families, WORDS, generator=self.g)
        self.families = families

    def draw(self, n):
        family = torch.randint(self.families, (n,), generator=self.g)
        notes = torch.multinomial(self.note_logits[family].softmax(-1), FORMULA, generator=self.g)
        dose = torch.rand(n, FORMULA, generator=self.g)
        words = torch.multinomial(self.word_logits[family].softmax(-1), BRIEF, generator=self.g)
        words[:, :3] = notes[:, :3] % WORDS
        return words, notes, dose / dose.sum(dim=1, keepdim=True)


class BriefTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.score = nn.Linear(width, 1)
        self.out = nn.Linear(width, width)

    def forward(self, words):
        h = self.word(words)
        return self.out((self.score(h).softmax(dim=1) * h).sum(dim=1))


class FormulaTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.note = nn.Embedding(NOTES, width)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, notes, dose):
        return self.out((self.note(notes) * dose.unsqueeze(-1)).sum(dim=1))


class Matcher(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.brief, self.formula = BriefTower(width), FormulaTower(width)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def embed(self, words, notes, dose):
        return F.normalize(self.brief(words), dim=-1), F.normalize(self.formula(notes, dose), dim=-1)

    def forward(self, words, notes, dose):
        a, b = self.embed(words, notes, dose)
        logits = self.log_scale.exp() * a @ b.t()
        target = torch.arange(len(words), device=words.device)
        return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


class Curve:
    def __init__(self, every):
        self.every, self.points = every, []
        self.sum = torch.zeros(())

    def add(self, update, value):
        self.sum += value
        if update % self.every == 0:
            self.points.append((update, self.sum.item() / self.every))
            self.sum.zero_()
            print("update {:4d}  loss {:.4f}".format(*self.points[-1]))


@torch.no_grad()
def retrieval(model, probe):
    """Share of the probe's briefs whose own formula is among the ten nearest."""
    model.eval()
    a, b = model.embed(*probe)
    nearest = (a @ b.t()).topk(10, dim=1).indices
    model.train()
    return (nearest == torch.arange(len(a)).unsqueeze(1)).any(dim=1).float().mean().item()


def main():
    plan = Plan()
    torch.manual_seed(15)
    briefs = Briefs(seed=15)
    probe = briefs.draw(200)
    model = Matcher()
    step = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, plan.lr, total_steps=plan.updates)
    curve = Curve(plan.report)

    began = time.perf_counter()
    for update in range(1, plan.updates + 1):
        gathered = torch.zeros(())
        for _ in range(plan.accumulate):
            loss = step(*briefs.draw(plan.micro)) / plan.accumulate
            loss.backward()
            gathered += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        curve.add(update, gathered)
        if update == 1:
            print(f"first update after {time.perf_counter() - began:.1f} s")
        if update % 110 == 0:
            print(f"update {update:4d}  top-10 retrieval {retrieval(model, probe):.2f}")
    print(f"{plan.updates} updates in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
