# Survival analysis: a neural Cox model (DeepSurv) on synthetic clinical covariates.
# Mini-batch Cox partial likelihood; concordance index on the validation patients after every epoch.
import dataclasses
import math

import numpy as np
import torch
from torch import nn
import torch_xla


@dataclasses.dataclass
class Config:
    patients: int = 1600
    features: int = 24
    batch: int = 200
    epochs: int = 3
    hidden: int = 128
    lr: float = 3e-3
    weight_decay: float = 1e-4
    seed: int = 11


def make_cohort(n, f, seed):
    """Weibull event times with a nonlinear risk, independent exponential censoring."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, f)).astype(np.float32)
    risk = 1.2 * x[:, 0] - 0.8 * x[:, 1] + 0.7 * x[:, 2] * x[:, 3] + 0.6 * np.abs(x[:, 4])
    event_time = (-np.log(rng.uniform(size=n)) * np.exp(-risk)) ** (1 / 1.5) * 10
    censor_time = rng.exponential(14.0, size=n)
    time = np.minimum(event_time, censor_time).astype(np.float32)
    observed = (event_time <= censor_time)
    return torch.from_numpy(x), torch.from_numpy(time), torch.from_numpy(observed)


class RiskNet(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.LayerNorm(hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.SiLU(),
            nn.Linear(hidden, 1, bias=False),
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def cox_loss(log_risk, time, observed):
    """Negative Breslow partial log-likelihood over the batch."""
    order = torch.argsort(time, descending=True)
    log_risk, observed = log_risk[order], observed[order]
    peak = log_risk.max().detach()
    log_cum = torch.log(torch.cumsum(torch.exp(log_risk - peak), 0)) + peak
    contribution = log_risk - log_cum
    return -contribution[observed].mean()


def concordance(risk, time, observed):
    """Harrell's C: the share of comparable pairs which the model orders rightly."""
    risk, time, observed = risk.tolist(), time.tolist(), observed.tolist()
    good, pairs = 0.0, 0
    for i in range(len(time)):
        if not observed[i]:
            continue
        for j in range(len(time)):
            if time[j] > time[i]:
                pairs += 1
                if risk[i] > risk[j]:
                    good += 1.0
                elif risk[i] == risk[j]:
                    good += 0.5
    return good / max(pairs, 1)


def run(cfg):
    torch.manual_seed(cfg.seed)
    device = torch_xla.device()
    x, time, observed = make_cohort(cfg.patients, cfg.features, cfg.seed)
    vx, vtime, vobserved = make_cohort(5000, cfg.features, cfg.seed + 1)
    mean, std = x.mean(0), x.std(0)
    x, vx = (x - mean) / std, (vx - mean) / std
    vx_dev = vx.to(device)

    net = RiskNet(cfg.features, cfg.hidden).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    steps = cfg.patients // cfg.batch
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * steps)
    print(f"{cfg.patients} patients, {observed.float().mean():.0%} with the event, {steps} steps per epoch")

    for epoch in range(cfg.epochs):
        net.train()
        perm = torch.randperm(cfg.patients)
        epoch_loss = torch.zeros((), device=device)
        for s in range(steps):
            idx = perm[s * cfg.batch:(s + 1) * cfg.batch]
            bx = x[idx].to(device)
            bt = time[idx].to(device)
            bo = observed[idx].to(device)
            opt.zero_grad()
            loss = cox_loss(net(bx), bt, bo)
            loss.backward()
            opt.step()
            sched.step()
            epoch_loss += loss.detach()
            torch_xla.sync()
        net.eval()
        with torch.no_grad():
            risk = net(vx_dev)
        torch_xla.sync()
        c_index = concordance(risk.cpu(), vtime, vobserved)
        average = epoch_loss.item() / steps
        assert math.isfinite(average)
        print(f"epoch {epoch}  loss {average:.4f}  C-index {c_index:.4f}")
    return c_index


if __name__ == "__main__":
    final = run(Config())
    print(f"final concordance {final:.3f}")
