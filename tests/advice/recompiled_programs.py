"""Programs that compile graphs again, and what advice makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import xlaprof.runtime as xr
from tests.advice.taken import Program
from xlaprof.runtime.execution.compiling import cache

DEVICE = "xla"


def steps(step: Callable[[Any], object], given: Iterable[Any]) -> Program:
    """A loop with a barrier at the end of each step."""

    def program() -> None:
        given_again = list(given)
        for one in given_again:
            kept = step(one)
            xr.sync()
            del kept

    return program


def on_device(x: Any) -> Any:
    x = x.to(DEVICE)
    return (x * 2.5).tanh().sum()


def rows(*sizes: int) -> list[Any]:
    return [torch.ones(size, 6) for size in sizes]


def both(pair: Any) -> Any:
    x, y = (one.to(DEVICE) for one in pair)
    return x.square().sum() + y.exp().sum()


def pairs(*sizes: tuple[int, int]) -> list[Any]:
    return [(torch.ones(4, a), torch.ones(4, b)) for a, b in sizes]


def padded(x: Any, axis: int, *edges: int) -> Any:
    size = next(edge for edge in edges if edge >= x.shape[axis])
    return F.pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, size - x.shape[axis]))


def picks(k: int) -> Any:
    x = torch.arange(24.0).reshape(4, 6).to(DEVICE)
    return x.topk(k, dim=1).values.sum()


def scaled(weight: Any) -> Any:
    x = torch.ones(4, 6).to(DEVICE)
    return (x.exp() * weight).sum()


def scaled_by_zero_dim(weight: Any) -> Any:
    x = torch.ones(4, 6).to(DEVICE)
    weight = torch.tensor(weight)
    weight = weight.to(DEVICE)
    return (x.exp() * weight).sum()


def scaled_by_one_element(weight: Any) -> Any:
    x = torch.ones(4, 6).to(DEVICE)
    weight = torch.tensor(weight)
    weight = weight.reshape(1)
    weight = weight.to(DEVICE)
    return (x.exp() * weight).sum()


def two_weights(pair: Any) -> Any:
    one, other = pair
    x = torch.ones(4, 6).to(DEVICE)
    return (x.exp() * one + x.sin() * other).sum()


def trained(*, lrs: Sequence[float]) -> Program:
    def program() -> None:
        model = nn.Linear(6, 2).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for lr in lrs:
            optimizer.param_groups[0]["lr"] = lr
            model(torch.ones(4, 6).to(DEVICE)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            xr.sync()

    return program


WARM_UP = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0)


def crops(start_of: Callable[[Any, int], Any]) -> Program:
    def program() -> None:
        table = torch.arange(400.0).reshape(4, 100).to(DEVICE)
        xr.sync()
        for n in range(12):
            out = start_of(table, (n * 7) % 50).sum()
            xr.sync()
            del out

    return program


def sliced(table: Any, at: int) -> Any:
    return table[:, at : at + 8]


def selected(table: Any, at: int) -> Any:
    positions = torch.arange(at, at + 8).to(table.device)
    return table.index_select(1, positions)


def writes(write: Callable[[Any, int, Any], None]) -> Program:
    def program() -> None:
        keys = torch.zeros(4, 100).to(DEVICE)
        xr.sync()
        for n in range(12):
            k = torch.ones(4, 8).to(DEVICE)
            write(keys, (n * 7) % 50, k)
            xr.sync()

    return program


def write_slice(keys: Any, at: int, k: Any) -> None:
    keys[:, at : at + 8] = k


def write_at(keys: Any, at: int, k: Any) -> None:
    positions = torch.arange(at, at + 8).to(keys.device)
    keys.index_copy_(1, positions, k)


def indexed(table: Any, at: int) -> Any:
    return table[:, at]


def held_at(table: Any, at: int) -> Any:
    position = torch.tensor([at]).to(table.device)
    return table.index_select(1, position).squeeze(1)


def best_of(table: Any, at: int) -> Any:
    scores = torch.zeros(table.shape[1]).index_fill_(0, torch.tensor([at]), 1.0)
    return scores.to(table.device).argmax()


def looked_up(table: Any, at: int) -> Any:
    return table[:, best_of(table, at)]


def looked_up_at(table: Any, at: int) -> Any:
    return table.index_select(1, best_of(table, at).reshape(1)).squeeze(1)


def rolled(table: Any, at: int) -> Any:
    return torch.roll(table, at, dims=1)


def gathered(table: Any, at: int) -> Any:
    positions = ((torch.arange(table.shape[1]) - at) % table.shape[1]).to(table.device)
    return table.index_select(1, positions)


def put(keys: Any, at: int, k: Any) -> None:
    keys[:, at] = k[:, 0]


def put_at(keys: Any, at: int, k: Any) -> None:
    position = torch.tensor([at]).to(keys.device)
    keys.index_copy_(1, position, k[:, 0].unsqueeze(1))


def marks(rows: Any) -> Any:
    scores = torch.ones(40).to(DEVICE)
    rows = rows.to(DEVICE)
    scores[rows] = -1.0
    return scores.sum()


def repeated(rows: Any, size: int) -> Any:
    return rows.index_select(0, torch.arange(size).clamp(max=rows.shape[0] - 1))


def switched(*, back: bool) -> Program:
    def program() -> None:
        model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Tanh()).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for n in range(12):
            model(torch.ones(4, 6).to(DEVICE)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            xr.sync()
            if n == 6:
                model.eval()
                out = model(torch.ones(8, 6).to(DEVICE)).sum()
                xr.sync()
                del out
                if back:
                    model.train()

    return program


def cast(enabled: Callable[[int], bool]) -> Program:
    def program() -> None:
        model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)).to(DEVICE)
        for n in range(12):
            with torch.autocast("xla", dtype=torch.bfloat16, enabled=enabled(n)):
                out = model(torch.ones(4, 6).to(DEVICE))
            xr.sync()
            del out

    return program


def cut(where: Callable[[int], bool]) -> Program:
    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        for n in range(12):
            h = (torch.ones(4, 6).to(DEVICE) @ weight).tanh()
            if where(n):
                xr.sync()
            y = (h @ weight).sum()
            xr.sync()
            del h, y

    return program


def epochs(*, barrier: bool) -> Program:
    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        xr.sync()
        for _ in range(3):
            total = torch.zeros((), device=DEVICE)
            if barrier:
                xr.sync()
            for _ in range(6):
                total += (torch.ones(4, 6).to(DEVICE) @ weight).tanh().sum()
                xr.sync()

    return program


def sums_behind(*, barrier: bool) -> Program:
    """Rounds that each begin with a new sum, and add to it behind the barrier of a turn."""

    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        xr.sync()
        for _ in range(3):
            mean = torch.zeros((), device=DEVICE)
            for _ in range(6):
                if barrier:
                    xr.sync()
                y = (torch.ones(4, 6).to(DEVICE) @ weight).tanh().sum()
                xr.sync()
                mean += 0.1 * y

    return program


def logs(*, barrier: bool) -> Program:
    def program() -> None:
        weight, total = torch.ones(6, 6).to(DEVICE), torch.zeros((), device=DEVICE)
        xr.sync()
        for n in range(24):
            total += (torch.ones(4, 6).to(DEVICE) @ weight).tanh().sum()
            xr.sync()
            if n % 6 == 5:
                total.zero_()
                if barrier:
                    xr.sync()

    return program


def accumulates(*, barrier_each: bool) -> Program:
    def program() -> None:
        model = nn.Linear(6, 2).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for n in range(16):
            model(torch.ones(4, 6).to(DEVICE)).square().mean().backward()
            if n % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
                if not barrier_each:
                    xr.sync()
            if barrier_each:
                xr.sync()

    return program


def thaws(*, always: bool) -> Program:
    def program() -> None:
        one, two = nn.Linear(6, 6).to(DEVICE), nn.Linear(6, 2).to(DEVICE)
        optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1)
        for n in range(12):
            one.requires_grad_(always or n % 4 == 1)
            two(one(torch.ones(4, 6).to(DEVICE)).tanh()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            xr.sync()

    return program


def skips(*, masked: bool) -> Program:
    def program() -> None:
        layers = [nn.Linear(6, 6).to(DEVICE) for _ in range(4)]
        for n in range(12):
            dropped = (), (1,), (1, 2), (0, 3)
            skipped = dropped[n % 4]
            x = torch.ones(4, 6).to(DEVICE)
            if masked:
                keep = torch.tensor([float(at not in skipped) for at in range(4)]).to(DEVICE)
                for at, layer in enumerate(layers):
                    x = torch.where(keep[at] > 0, layer(x).tanh(), x)
            else:
                for at, layer in enumerate(layers):
                    if at in skipped:
                        continue
                    x = layer(x).tanh()
            xr.sync()
            del x

    return program


def under_adam(*, masked: bool) -> Program:
    """Adapters, one of which is left out now and then: Adam counts fewer steps of its parameters."""

    def program() -> None:
        layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2)).to(DEVICE)
        optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
        for n in range(16):
            skipped = n in (1, 3, 4, 8, 9, 13)
            x = torch.ones(4, 6).to(DEVICE)
            keep = torch.tensor([1.0, float(not skipped)]).to(DEVICE)
            for at, layer in enumerate(layers):
                if masked:
                    x = x + keep[at] * layer(x).tanh()
                    continue
                if at and skipped:
                    continue
                x = x + layer(x).tanh()
            optimizer.zero_grad()
            x.square().mean().backward()
            optimizer.step()
            xr.sync()

    return program


def turns(counts: Sequence[int], *, each: bool = False) -> Program:
    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        for count in counts:
            x = torch.ones(4, 6).to(DEVICE)
            for _ in range(count):
                x = (x @ weight).tanh()
                if each:
                    xr.sync()
            x = x.sum()
            xr.sync()
            del x

    return program


def smoothed(by_step: Callable[[int], float]) -> Program:
    def program() -> None:
        target = torch.zeros(4, dtype=torch.long).to(DEVICE)
        for n in range(12):
            by = by_step(n)
            logits = torch.ones(4, 6).to(DEVICE)
            loss = F.cross_entropy(logits, target, label_smoothing=by)
            xr.sync()
            del loss

    return program


def penalized(*, always: bool) -> Program:
    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        for n in range(12):
            x = (torch.ones(4, 6).to(DEVICE) @ weight).tanh()
            if always:
                now = torch.tensor([n % 3 == 0]).to(DEVICE)
                x = torch.where(now, x + weight.square().sum().sqrt(), x)
            elif n % 3 == 0:
                x = x + weight.square().sum().sqrt()
            x = x.sum()
            xr.sync()
            del x

    return program


def evicts(*, limit: int, heads: int = 3) -> Program:
    def first() -> None:
        out = torch.ones(4, 6).to(DEVICE).exp()
        xr.sync()
        del out

    def second() -> None:
        out = torch.ones(4, 6).to(DEVICE).tanh()
        xr.sync()
        del out

    def third() -> None:
        out = torch.ones(4, 6).to(DEVICE).cumsum(1)
        xr.sync()
        del out

    def program() -> None:
        was, cache.limit = cache.limit, limit
        try:
            for n in range(12):
                (first, second, third)[n % heads]()
        finally:
            cache.limit = was
            cache.forgotten.clear()

    return program


def holds(*, after: str = "") -> Program:
    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        kept: list[Any] = []
        for n in range(12):
            h = (torch.ones(4, 6).to(DEVICE) @ weight).tanh()
            loss = h.square().mean()
            if not after and n in (5, 9):
                kept.append(h)
            if after != "same":
                del h
            xr.sync()
            if after and n in (5, 9):
                kept.append(loss.cpu() if after == "copied" else loss if after == "computed" else h)
            loss = h = None

    return program


def averages(*, buffer: bool) -> Program:
    def program() -> None:
        history = []
        window = torch.zeros(16, device=DEVICE)
        for _ in range(12):
            value = torch.ones(4, 6).to(DEVICE).exp().mean()
            if buffer:
                window = torch.roll(window, -1)
                window[-1] = value
                mean = window.mean()
            else:
                history.append(value)
                mean = torch.stack(history).mean()
            xr.sync()
            del mean

    return program


def grows(*, static: bool) -> Program:
    def program() -> None:
        weight = torch.ones(6, 6).to(DEVICE)
        cache = torch.ones(4, 1, 6).to(DEVICE)
        buffer = torch.zeros(4, 24, 6, dtype=torch.float32, device=DEVICE)
        position = torch.tensor([1], device=DEVICE)
        for _ in range(12):
            new = (torch.ones(4, 1, 6).to(DEVICE) @ weight).tanh()
            if static:
                buffer = buffer.index_copy(1, position, new)
                position = position + 1
                out = buffer.sum()
            else:
                cache = torch.cat([cache, new], 1)
                out = cache.sum()
            xr.sync()
            del out

    return program
