"""Flank wear of lathe inserts from spindle vibration; the whole update (forward, backward, optimizer) is compiled."""
import collections
import math
import time

import torch
from torch import nn

EPOCHS, STEPS, BATCH, LENGTH = 12, 25, 32, 64


def vibration(generator, n):
    """Returns (signal, cutting parameters, wear): wear moves energy from the tooth frequency to its harmonics."""
    wear = torch.rand(n, 1, generator=generator)
    speed = 0.5 + torch.rand(n, 1, generator=generator)
    t = torch.arange(LENGTH) / LENGTH * 2 * math.pi
    phase = torch.rand(n, 1, generator=generator) * 2 * math.pi
    signal = (1 - 0.5 * wear) * torch.sin(6 * speed * t + phase) + wear * torch.sin(12 * speed * t + 2 * phase)
    signal = signal + 0.3 * torch.randn(n, LENGTH, generator=generator)
    return signal.unsqueeze(1), torch.cat([speed, speed ** 2], dim=1), wear


class ConvBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, 5, stride=stride, padding=2)
        self.norm = nn.GroupNorm(2, c_out)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))


class WearNet(nn.Module):
    def __init__(self, channels=(8, 12, 16)):
        super().__init__()
        widths = (1, *channels)
        self.body = nn.Sequential(*(ConvBlock(a, b, 2) for a, b in zip(widths, widths[1:])))
        self.film = nn.Linear(2, 2 * channels[-1])
        self.head = nn.Linear(channels[-1], 1)

    def forward(self, signal, params):
        h = self.body(signal).mean(dim=-1)
        scale, shift = self.film(params).chunk(2, dim=-1)
        return torch.sigmoid(self.head(h * (1 + scale) + shift))


class ActivationSurvey:
    """Looks for silent channels: collects the mean activation of each block over some batches."""

    def __init__(self, model):
        self.model = model
        self.handles = []
        self.means = collections.defaultdict(list)

    def attach(self):
        for name, module in self.model.named_modules():
            if isinstance(module, ConvBlock):
                self.handles.append(module.register_forward_hook(self._collector(name)))

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def _collector(self, name):
        def collect(module, inputs, output):
            self.means[name].append(output.detach().abs().mean(dim=(0, 2)))
        return collect

    def summary(self):
        return {name: int((torch.stack(rows).mean(dim=0) < 0.02).sum()) for name, rows in self.means.items()}


def survey(model, generator, batches=3):
    report = ActivationSurvey(model)
    report.attach()
    model.eval()
    with torch.no_grad():
        for _ in range(batches):
            signal, params, _ = vibration(generator, BATCH)
            model(signal, params)
    report.detach()
    model.train()
    return report.summary()


def warmup_cosine(step, total, warmup=20):
    if step < warmup:
        return (step + 1) / warmup
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def main():
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = WearNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: warmup_cosine(s, EPOCHS * STEPS))
    run_model = torch.compile(model, backend="aot_eager")

    @torch.compile(backend="aot_eager")
    def apply_update():
        optimizer.step()

    val = vibration(generator, 256)
    for epoch in range(EPOCHS):
        began = time.perf_counter()
        total = torch.zeros(())
        for _ in range(STEPS):
            signal, params, wear = vibration(generator, BATCH)
            loss = nn.functional.l1_loss(run_model(signal, params), wear)
            loss.backward()
            apply_update()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            total += loss.detach()
        silent = survey(model, generator)
        with torch.no_grad():
            error = nn.functional.l1_loss(model(*val[:2]), val[2])
        print(f"epoch {epoch:2d}  train {total.item() / STEPS:.4f}  val {error.item():.4f}  "
              f"lr {schedule.get_last_lr()[0]:.2e}  silent {sum(silent.values())}  {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
