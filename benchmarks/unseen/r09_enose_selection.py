"""Which sensors of an electronic nose suffice?  A concrete autoencoder (Abid et al. 2019) selects k of them."""
import io
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

SENSORS, SELECT, HIDDEN = 40, 6, 48
BATCH, STEPS = 64, 400
TAU_START, TAU_END = 4.0, 0.2


class Headspace:
    """Responses of cross-sensitive sensors to mixtures of a few volatiles."""

    def __init__(self, n, seed, volatiles=5):
        g = torch.Generator().manual_seed(seed)
        mixing = torch.randn(volatiles, SENSORS, generator=torch.Generator().manual_seed(99))
        conc = torch.rand(n, volatiles, generator=g)
        self.x = torch.tanh(conc @ mixing) + 0.05 * torch.randn(n, SENSORS, generator=g)
        self.g = g

    def batches(self, size, count):
        for _ in range(count):
            x = self.x[torch.randint(0, len(self.x), (size,), generator=self.g)]
            dead = torch.rand(size, SENSORS, generator=self.g) < 0.05  # sensors that failed in the field
            yield x, dead


class ConcreteSelector(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(0.01 * torch.randn(SELECT, SENSORS))

    def forward(self, x, tau):
        if self.training:
            u = torch.rand_like(self.logits).clamp(1e-6, 1 - 1e-6)
            gumbel = -torch.log(-torch.log(u))
            w = F.softmax((self.logits + gumbel) / tau, -1)
        else:
            w = F.one_hot(self.logits.argmax(-1), SENSORS).to(x.dtype)
        return x @ w.t()


class Nose(nn.Module):
    def __init__(self):
        super().__init__()
        self.select = ConcreteSelector()
        self.decode = nn.Sequential(nn.Linear(SELECT, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, SENSORS))

    def forward(self, x, tau, noise):
        z = self.select(x, tau)
        z = F.dropout(z, noise, self.training)
        return self.decode(z)


def temperature(step):
    return TAU_START * (TAU_END / TAU_START) ** (step / STEPS)


def learning_rate(step):
    return 3e-3 * min((step + 1) / 40, math.sqrt(40 / (step + 1)))


def guarded_update(params, opt, loss):
    """A batch whose loss is not finite leaves the parameters alone, without asking the device about it."""
    loss.backward()
    ok = torch.isfinite(loss.detach())
    for p in params:
        p.grad = torch.where(ok, p.grad, torch.zeros_like(p.grad))
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()


def report(step, loss, tau):
    print(f"step {step:4d}  loss {loss.item():.4f}  tau {tau:.3f}", flush=True)


@torch.no_grad()
def validate(model, data, device):
    model.eval()
    x = data.x.to(device)
    err = F.mse_loss(model(x, 1.0, 0.0), x)
    distinct = model.select.logits.argmax(-1).cpu().unique().numel()
    return err.item(), distinct


def main():
    torch.manual_seed(6)
    device = torch_xla.device()
    train, test = Headspace(2000, 1), Headspace(300, 2)
    model = Nose().to(device)
    params = list(model.parameters())
    opt = torch.optim.Adam(params, lr=learning_rate(0))
    average = torch.zeros((), device=device)
    torch_xla.sync()

    for step, (x, dead) in enumerate(train.batches(BATCH, STEPS)):
        x = x.to(device)
        seen = torch.where(dead.to(device), 0.0, x)
        tau = temperature(step)
        for group in opt.param_groups:
            group["lr"] = learning_rate(step)
        opt.zero_grad()
        out = model(seen, tau, noise=0.02 + 0.1 * (1 - step / STEPS))
        loss = F.mse_loss(out, x) + 1e-3 * F.relu(model.select.logits.softmax(-1).sum(0) - 1.5).sum()
        guarded_update(params, opt, loss)
        average.lerp_(loss.detach(), 0.02)
        if (step + 1) % 50 == 0:
            xm.add_step_closure(report, args=(step + 1, average.clone(), tau))
        xm.mark_step()

    err, distinct = validate(model, test, device)
    blob = io.BytesIO()
    xm.save(model.state_dict(), blob)
    print(f"test error {err:.4f} with {distinct} distinct sensors; checkpoint of {blob.tell()} bytes")


if __name__ == "__main__":
    main()
