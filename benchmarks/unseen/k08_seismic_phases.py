"""Phase picking on seismic traces with a light recurrent cell written out by hand and compiled."""
import random
import time
from typing import List, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

QUIET, P_PHASE, S_PHASE = 0, 1, 2


class Event(NamedTuple):
    trace: Tensor
    phase: Tensor


class Batch(NamedTuple):
    trace: Tensor
    phase: Tensor
    mask: Tensor


class EventCatalogue(Dataset):
    """Windows around events: the further the station, the longer between P and S, and the longer the window."""

    def __init__(self, count: int, seed: int):
        rng = random.Random(seed)
        g = torch.Generator().manual_seed(seed)
        self.events: List[Event] = []
        for _ in range(count):
            p = rng.randint(3, 6)
            gap = rng.randint(2, 12)
            n = p + gap + 6
            trace = 0.3 * torch.randn(n, 3, generator=g)
            phase = torch.zeros(n, dtype=torch.long)
            trace[p:, 2] += 1.5 * torch.exp(-torch.arange(n - p) / 3.0)
            trace[p + gap:, :2] += 2.5 * torch.exp(-torch.arange(n - p - gap) / 4.0)[:, None]
            phase[p:p + gap] = P_PHASE
            phase[p + gap:] = S_PHASE
            self.events.append(Event(trace, phase))

    def __len__(self):
        return len(self.events)

    def __getitem__(self, i) -> Event:
        return self.events[i]


def collate(events: List[Event]) -> Batch:
    n = max(len(e.phase) for e in events)
    trace = torch.zeros(len(events), n, 3)
    phase = torch.zeros(len(events), n, dtype=torch.long)
    mask = torch.zeros(len(events), n, dtype=torch.bool)
    for i, e in enumerate(events):
        k = len(e.phase)
        trace[i, :k], phase[i, :k], mask[i, :k] = e.trace, e.phase, True
    return Batch(trace, phase, mask)


class MinimalGatedCell(nn.Module):
    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.gate = nn.Linear(inputs + width, width)
        self.candidate = nn.Linear(inputs + width, width)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        f = torch.sigmoid(self.gate(torch.cat([x, h], -1)))
        c = torch.tanh(self.candidate(torch.cat([x, f * h], -1)))
        return (1 - f) * h + f * c


class PhasePicker(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.width = width
        self.lift = nn.Sequential(nn.Linear(3, width), nn.Tanh())
        self.cell = MinimalGatedCell(width, width)
        self.head = nn.Linear(width, 3)

    def forward(self, trace: Tensor) -> Tensor:
        x = self.lift(trace)
        h = x.new_zeros(x.shape[0], self.width)
        states = []
        for x_t in x.unbind(1):
            h = self.cell(x_t, h)
            states.append(h)
        return self.head(torch.stack(states, 1))


def masked_loss(logits: Tensor, batch: Batch) -> Tensor:
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), batch.phase, reduction="none")
    return (losses * batch.mask).sum() / batch.mask.sum()


@torch.no_grad()
def pick_error(model, loader) -> float:
    """Mean distance, in samples, between the picked and the true onset of S."""
    model.eval()
    distance, count = 0.0, 0
    for batch in loader:
        is_s = (model(batch.trace).argmax(-1) == S_PHASE) & batch.mask
        picked = is_s.float().argmax(1)
        truth = (batch.phase == S_PHASE).float().argmax(1)
        distance += (picked - truth).abs().float().sum().item()
        count += len(truth)
    model.train()
    return distance / count


def main():
    torch.manual_seed(2)
    train = DataLoader(EventCatalogue(800, 1), batch_size=8, shuffle=True, collate_fn=collate)
    valid = DataLoader(EventCatalogue(128, 2), batch_size=8, collate_fn=collate)
    picker = PhasePicker()
    model = torch.compile(picker, backend="aot_eager")
    optimizer = torch.optim.RMSprop(picker.parameters(), lr=1e-3)
    for epoch in range(2):
        began = time.perf_counter()
        total, seen = torch.zeros(()), 0
        for batch in train:
            loss = masked_loss(model(batch.trace), batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(picker.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
            seen += 1
        took = time.perf_counter() - began
        print(f"epoch {epoch}  loss {total.item() / seen:.4f}  S error {pick_error(model, valid):.2f}  {took:.1f} s")


if __name__ == "__main__":
    main()
