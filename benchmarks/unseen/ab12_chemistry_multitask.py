"""Multi-task assay model: each batch comes from a lab that measured some of the assays."""
import itertools
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ASSAYS = ["solubility", "toxicity", "binding", "halflife"]
BITS = 64


class Lab:
    """One source of batches; it measures its own set of assays."""

    def __init__(self, name, assays, seed):
        self.name, self.assays = name, assays
        self.gen = torch.Generator().manual_seed(seed)
        w = torch.Generator().manual_seed(99)
        self.truth = {a: torch.randn(BITS, generator=w) / 8 for a in ASSAYS}

    def draw(self, n):
        bits = (torch.rand(n, BITS, generator=self.gen) < 0.2).float()
        targets = {a: bits @ self.truth[a] for a in self.assays}
        return bits, targets


class AssayModel(nn.Module):
    def __init__(self, hidden=64, warmup=150):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(BITS, hidden), nn.SiLU(), nn.LayerNorm(hidden),
            nn.Linear(hidden, hidden), nn.SiLU())
        self.heads = nn.ModuleDict({a: nn.Sequential(
            nn.Linear(hidden, 32), nn.SiLU(), nn.Linear(32, 1)) for a in ASSAYS})
        self.log_var = nn.ParameterDict({a: nn.Parameter(torch.zeros(())) for a in ASSAYS})
        self.warmup = warmup

    def forward(self, bits, targets):
        h = self.trunk(bits)
        losses = {}
        for assay, y in targets.items():
            err = F.mse_loss(self.heads[assay](h).squeeze(-1), y)
            s = self.log_var[assay]
            losses[assay] = torch.exp(-s) * err + s
        return sum(losses.values()) / len(losses)


def make_labs():
    labs = []
    for r in (1, 2, 3, 4):
        for combo in itertools.combinations(ASSAYS, r):
            labs.append(Lab(f"lab{len(labs)}", combo, seed=len(labs)))
    return labs


def holdout(model, labs, n=64):
    model.eval()
    errors = {}
    with torch.no_grad():
        for assay in ASSAYS:
            lab = next(l for l in labs if l.assays == (assay,))
            bits, targets = lab.draw(n)
            pred = model.heads[assay](model.trunk(bits)).squeeze(-1)
            errors[assay] = F.mse_loss(pred, targets[assay]).item()
    model.train()
    return errors


def main():
    torch.manual_seed(0)
    rng = random.Random(1)
    labs = make_labs()
    model = AssayModel()
    step_loss = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / model.warmup))
    mean = 0.0
    for step in range(1, 1201):
        lab = rng.choice(labs)
        bits, targets = lab.draw(24)
        loss = step_loss(bits, targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        mean = mean * 0.98 + 0.02 * loss.detach()
        if step % 300 == 0:
            errs = holdout(model, labs)
            print(f"step {step} loss {float(mean):.4f} " + " ".join(f"{a}={e:.3f}" for a, e in errs.items()))


if __name__ == "__main__":
    main()
