"""MAML on sensor calibration curves: every task is a device with its own response; second order, fixed inner steps."""
import math
from dataclasses import dataclass
import torch
import torch.nn.functional as F
import torch_xla


@dataclass(frozen=True)
class MetaCfg:
    tasks: int = 6
    shots: int = 10
    inner_steps: int = 2
    inner_lr: float = 0.05
    meta_lr: float = 2e-3
    warmup: int = 20
    steps: int = 160
    log_every: int = 80


def init(device, hidden=40):
    sizes = [(1, hidden), (hidden, hidden), (hidden, 1)]
    params = []
    for i, o in sizes:
        params += [torch.randn(i, o) / math.sqrt(i), torch.zeros(o)]
    return [p.to(device).requires_grad_() for p in params]


def net(x, params):
    """x: tasks, shots, 1; params may carry a leading task dimension."""
    for k in range(0, len(params), 2):
        w, b = params[k], params[k + 1]
        x = x @ w + (b if b.dim() == 1 else b[:, None])
        if k < len(params) - 2:
            x = torch.tanh(x)
    return x


def adapt(params, x, y, cfg):
    fast = [p.expand(cfg.tasks, *p.shape) for p in params]
    for _ in range(cfg.inner_steps):
        loss = F.mse_loss(net(x, fast), y, reduction="none").mean((1, 2)).sum()
        grads = torch.autograd.grad(loss, fast, create_graph=True)
        fast = [p - cfg.inner_lr * g for p, g in zip(fast, grads)]
    return fast


class Devices:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def draw(self, cfg):
        n = 2 * cfg.shots
        x = torch.rand(cfg.tasks, n, 1, generator=self.g) * 4 - 2
        gain = 0.5 + torch.rand(cfg.tasks, 1, 1, generator=self.g)
        bend = torch.rand(cfg.tasks, 1, 1, generator=self.g) * 3
        y = gain * x + torch.sin(bend * x) + 0.02 * torch.randn(x.shape, generator=self.g)
        return x[:, :cfg.shots], y[:, :cfg.shots], x[:, cfg.shots:], y[:, cfg.shots:]


def evaluate(params, devices, cfg, device):
    xs, ys, xq, yq = (t.to(device) for t in devices.draw(cfg))
    fast = adapt(params, xs, ys, cfg)
    return F.mse_loss(net(xq, fast), yq).item()


def main():
    cfg = MetaCfg()
    torch.manual_seed(0)
    device = torch_xla.device()
    params = init(device)
    opt = torch.optim.Adam(params, lr=cfg.meta_lr)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / cfg.warmup))
    train, held_out = Devices(1), Devices(2)
    meter = torch.zeros((), device=device)
    print(f"before training: query error {evaluate(params, held_out, cfg, device):.4f}")
    for step in range(1, cfg.steps + 1):
        xs, ys, xq, yq = (t.to(device) for t in train.draw(cfg))
        fast = adapt(params, xs, ys, cfg)
        loss = F.mse_loss(net(xq, fast), yq)
        opt.zero_grad()
        loss.backward()
        opt.step()
        warm.step()
        meter.mul_(0.98).add_(loss.detach() * 0.02)
        torch_xla.sync()
        if step % cfg.log_every == 0:
            print(f"step {step} meta loss {meter.item():.4f} lr {warm.get_last_lr()[0]:.5f}")
    print(f"after training: query error {evaluate(params, held_out, cfg, device):.4f}")


if __name__ == "__main__":
    main()
