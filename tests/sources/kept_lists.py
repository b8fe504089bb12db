"""Compiled functions that keep a list, or are given one, and the same with the list outside or in a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch


class Keeping(torch.nn.Module):
    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside, self.history = inside, list[Any]()

    def forward(self, x: Any) -> Any:
        y = x * 2
        if self.inside:
            self.history.append(y)
        return y


def kept(*, inside: bool) -> Callable[[], Any]:
    def program() -> None:
        model = Keeping(inside)
        fast = torch.compile(model, backend="eager")
        for _ in range(4):
            y = fast(torch.ones(3))
            if not inside:
                model.history.append(y)

    return program


class Recent(torch.nn.Module):
    """Divides by the mean of the latest four, which a list or a buffer holds."""

    latest: Any
    count: Any

    def __init__(self, rolled: bool) -> None:
        super().__init__()
        self.rolled, self.history = rolled, list[Any]()
        self.register_buffer("latest", torch.zeros(4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        if self.rolled:
            self.latest.copy_(torch.cat([self.latest[1:], x.sum()[None]]))
            self.count.add_(1).clamp_(max=4)
            return x / (self.latest.sum() / self.count)
        self.history.append(x.sum())
        self.history = self.history[-4:]
        return x / torch.stack(self.history).mean()


def recent(*, rolled: bool) -> Callable[[], Any]:
    def program() -> None:
        model = Recent(rolled)
        fast = torch.compile(model, backend="eager")
        for _ in range(4):
            fast(torch.ones(3))

    return program


def voiced(x: Any, voices: Any, there: Any = None) -> Any:
    """Adds the voices that there are: those of a dict, or those that a mask says."""
    for n, name in enumerate(("bass", "alto", "tenor")):
        if there is not None:
            x = x + torch.where(there[n], voices[name], 0.5)
        elif name in voices:
            x = x + voices[name]
        else:
            x = x + 0.5
    return x


def sung(*of: str, masked: bool) -> Any:
    """Arguments of that."""
    if masked:
        there = [name in of for name in ("bass", "alto", "tenor")]
        return torch.ones(3), {name: torch.ones(3) for name in ("bass", "alto", "tenor")}, torch.tensor(there)
    return torch.ones(3), {name: torch.ones(3) for name in of}


def weighted(x: Any, weights: Any) -> Any:
    """Weights as a list, which a tensor is made of here, or as a tensor."""
    return x * torch.as_tensor(weights)


class Envelope:
    """How loud a note is, and how bright, in each of its phases: lists, or tensors of what is in them."""

    def __init__(self) -> None:
        self.loud: Any = [0.2, 0.9, 0.6, 0.1]
        self.bright: Any = [1.0, 4.0, 2.0, 0.5]


def sounded(*, tensors: bool) -> Callable[[], Any]:
    """A synthesizer that shapes a note by its phase, which comes as a number, or as a tensor of one element."""
    envelope = Envelope()

    def shape(x: Any, phase: Any) -> Any:
        if tensors:
            loud, bright = (one.index_select(0, phase) for one in (envelope.loud, envelope.bright))
            shaped = torch.tanh(x * torch.sqrt(bright)) * loud
            return torch.where(phase > 0, shaped, x) + phase.expand(3)
        shaped = torch.tanh(x * math.sqrt(envelope.bright[phase])) * envelope.loud[phase]
        return (shaped if phase > 0 else x) + torch.full((3,), phase)

    def program() -> None:
        if tensors:
            envelope.loud, envelope.bright = torch.tensor(envelope.loud), torch.tensor(envelope.bright)
        fast = torch.compile(shape, backend="eager")
        for phase in range(4):
            fast(torch.ones(3), torch.tensor([phase]) if tensors else phase)

    return program


class Tower(torch.nn.Module):
    """Floors that are built one by one, each on what those below it give."""

    def __init__(self) -> None:
        super().__init__()
        self.floors = torch.nn.ModuleList()

    def build(self) -> Any:
        self.floors.append(torch.nn.Linear(3, 3))
        return self.floors[-1]

    def forward(self, x: Any) -> Any:
        for floor in self.floors:
            x = torch.relu(floor(x))
        return x


def built(*, alone: bool) -> Callable[[], Any]:
    """Three steps for each floor: of the whole tower, or of what is new, on what those below gave once."""

    def program() -> None:
        tower, x = Tower(), torch.ones(3)
        whole = torch.compile(tower, backend="eager")
        for _ in range(4):
            with torch.no_grad():
                below = tower(x)
            floor = tower.build()
            new = torch.compile(floor, backend="eager")
            for _ in range(3):
                out = torch.relu(new(below)) if alone else whole(x)
                out.sum().backward()

    return program


class Choir(torch.nn.Module):
    """Voices that sing together: those that it has, or of all those that a mask says."""

    on: Any

    def __init__(self) -> None:
        super().__init__()
        self.voices = torch.nn.ModuleDict()
        self.register_buffer("on", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return sum(self.on[n] * voice(x) for n, voice in enumerate(self.voices.values()))


def joined(*, all_of_them: bool) -> Callable[[], Any]:
    """A part that other voices sing each time."""

    def program() -> None:
        choir, names = Choir(), ("bass", "alto", "tenor")
        known = {name: torch.nn.Linear(3, 3) for name in names}
        fast = torch.compile(choir, backend="eager")
        for there in (("bass",), ("alto", "tenor"), ("bass", "tenor")):
            choir.voices = torch.nn.ModuleDict({name: known[name] for name in (names if all_of_them else there)})
            if all_of_them:
                choir.on.copy_(torch.tensor([float(name in there) for name in names]))
            fast(torch.ones(3))

    return program
