"""Forecast of river gauges by a recurrent network whose state runs on from window to window."""
import queue
import threading
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

GAUGES, FEATURES, WINDOW = 24, 5, 8


@dataclass
class Options:
    hidden: int = 48
    epochs: int = 3
    windows: int = 40
    lr: float = 3e-3
    clip: float = 1.0
    warmup: int = 15
    seed: int = 31


class Catchment:
    """Rain on several sub-catchments, routed through linear reservoirs."""

    def __init__(self, steps, seed):
        g = torch.Generator().manual_seed(seed)
        rain = torch.rand(steps, GAUGES, FEATURES - 1, generator=g).pow(6) * 4
        share = torch.rand(GAUGES, FEATURES - 1, generator=g)
        keep = 0.8 + 0.15 * torch.rand(GAUGES, generator=g)
        level, levels = torch.zeros(GAUGES), []
        for t in range(steps):
            level = keep * level + (1 - keep) * (rain[t] * share).sum(-1) * 3
            levels.append(level)
        self.level = torch.stack(levels)
        self.inputs = torch.cat([rain, self.level.unsqueeze(-1)], -1)

    def window(self, k):
        a = k * WINDOW
        return self.inputs[a:a + WINDOW], self.level[a + 1:a + WINDOW + 1] - self.level[a:a + WINDOW]


class Prefetch:
    """Cuts windows on a thread, a few ahead."""

    def __init__(self, source, windows, depth=4):
        self.queue = queue.Queue(depth)
        self.thread = threading.Thread(target=self.fill, args=(source, windows), daemon=True)
        self.thread.start()

    def fill(self, source, windows):
        for k in range(windows):
            self.queue.put(source.window(k))
        self.queue.put(None)

    def __iter__(self):
        while (item := self.queue.get()) is not None:
            yield item


class GaugeNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.cell = nn.GRUCell(FEATURES, hidden)
        self.out = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, window, state):
        rows = []
        for x in window:
            state = self.cell(x, state)
            rows.append(state)
        return self.out(torch.stack(rows)).squeeze(-1), state


def clip_on_device(parameters, limit):
    """Scales gradients down to the limit without asking the device how large they are."""
    grads = [p.grad for p in parameters]
    norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(scale)
    return norm


class Forecaster:
    def __init__(self, options):
        self.options, self.device = options, torch_xla.device()
        self.net = GaugeNet(options.hidden).to(self.device)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=options.lr)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda k: (k + 1) / (options.warmup + 0.5) if k < options.warmup else 0.97 ** (k / 40))
        self.step_count = 0

    def epoch(self, catchment):
        state = torch.zeros(GAUGES, self.options.hidden, device=self.device)
        torch_xla.sync()
        losses, norms = [], []
        for window, rise in Prefetch(catchment, self.options.windows):
            predicted, state = self.net(window.to(self.device), state)
            loss = (predicted - rise.to(self.device)).square().mean()
            self.opt.zero_grad()
            loss.backward()
            norms.append(clip_on_device(self.net.parameters(), self.options.clip))
            self.opt.step()
            self.sched.step()
            state = state.detach()
            losses.append(loss.detach())
            self.step_count += 1
            xm.mark_step()
        return torch.stack([torch.stack(losses).mean(), torch.stack(norms).max()]).tolist()

    @torch.no_grad()
    def skill(self, catchment, windows=8):
        """Share of the variance that the forecast explains, on a later season."""
        state = torch.zeros(GAUGES, self.options.hidden, device=self.device)
        torch_xla.sync()
        errors = []
        for k in range(windows):
            window, rise = catchment.window(k)
            predicted, state = self.net(window.to(self.device), state)
            rise = rise.to(self.device)
            errors.append(torch.stack([(predicted - rise).square().mean(), rise.square().mean()]))
            xm.mark_step()
        error, spread = torch.stack(errors).mean(0).tolist()
        return 1 - error / spread


def main():
    options = Options()
    torch.manual_seed(options.seed)
    forecaster = Forecaster(options)
    season = Catchment(options.windows * WINDOW + 1, seed=1)
    later = Catchment(8 * WINDOW + 1, seed=1)
    for epoch in range(options.epochs):
        loss, norm = forecaster.epoch(season)
        print(f"epoch {epoch} loss {loss:.5f} largest gradient {norm:.2f} skill {forecaster.skill(later):.3f}")


if __name__ == "__main__":
    main()
