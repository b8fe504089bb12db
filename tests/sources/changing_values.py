"""Values that are meant to change, and several things that change together: programs, and what they are advised.

A counter, a schedule, layers that are left out by turns: none of them is to be kept constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

from tests.sources.advised import Case, T, calls, times, with_config
from tests.sources.needed_numbers import Buffered, Counting

STEPS, RATES = (2, 3, 4, 5), (0.5, 0.4, 0.3, 0.2)
mark_dynamic = torch._dynamo.maybe_mark_dynamic


def counts(model: Any, values: Any, **options: Any) -> Callable[[], Any]:
    """A program that sets the number of a module, or of what else computes with its ``count``, before each call."""

    def program() -> None:
        fast = torch.compile(model if callable(model) else model.forward, backend="eager", **options)
        for value in values:
            if torch.is_tensor(model.count):
                model.count.fill_(value)
            else:
                model.count = value
            fast(torch.ones(3))

    return program


def repeated(x: Any, k: int) -> Any:
    for _ in range(k):
        x = x + 1
    return x


def turn(x: Any) -> Any:
    return x + 1


def masked(x: Any, k: Any) -> Any:
    return x + (torch.arange(8) < k).sum()


def picked(x: Any, k: int) -> Any:
    return (torch.sin, torch.cos, torch.tan, torch.exp)[k](x)


def spread(x: Any, k: int) -> Any:
    return x[:k].sum() / math.log(x[:k].shape[0])


def spread_masked(x: Any, k: Any) -> Any:
    return torch.where(torch.arange(8) < k, x, 0).sum() / torch.log(k)


class Schedule:
    """A schedule's factor, in an object that is no module."""

    def __init__(self) -> None:
        self.count: Any = 0.5

    def forward(self, x: Any) -> Any:
        return x * self.count


class Leaky(Counting):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.leaky_relu(x, self.count)


class Bent(Buffered):
    def forward(self, x: Any) -> Any:
        return torch.where(x > 0, x, x * self.count)


class Reel(torch.nn.Module):
    """Takes the frames from one on: where they begin is the module's, or passed."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0
        self.register_buffer("frames", torch.ones(9, 2))

    def forward(self, x: Any, at: Any = None) -> Any:
        if at is None:
            return x + self.frames[torch.arange(self.at, self.at + 3)]
        return x + self.frames[torch.arange(at, at + 3)]


class Ribbon(torch.nn.Module):
    """Writes a column of what it keeps, the next one in each call; its place is a number or a tensor."""

    def __init__(self, *, tensor: bool) -> None:
        super().__init__()
        self.tensor, self.at = tensor, 2
        self.register_buffer("place", torch.tensor(2))
        self.register_buffer("kept", torch.zeros(3, 9))

    def forward(self, x: Any) -> Any:
        if self.tensor:
            self.kept.index_copy_(1, self.place.reshape(1), x.unsqueeze(1))
            self.place += 1
        else:
            self.kept[:, self.at] = x
            self.at += 1
        return x * 2


class Worn(torch.nn.Module):
    """A layer further in drops out by a rate that a schedule lowers."""

    def __init__(self, *, tensor: bool) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleList([Wearing(tensor=tensor)])

    def forward(self, x: Any) -> Any:
        for one in self.inner:
            x = one(x)
        return x


class Wearing(torch.nn.Module):
    def __init__(self, *, tensor: bool) -> None:
        super().__init__()
        self.tensor, self.rate = tensor, 0.0
        self.register_buffer("keep", torch.tensor(1.0))

    def forward(self, x: Any) -> Any:
        if self.tensor:
            return x * (torch.rand_like(x) < self.keep) / self.keep
        return torch.nn.functional.dropout(x, self.rate, self.training)


def worn(*, tensor: bool, **options: Any) -> Callable[[], Any]:
    def program() -> None:
        model = Worn(tensor=tensor)
        fast = torch.compile(model, backend="eager", **options)
        for rate in RATES:
            if tensor:
                model.inner[0].keep.fill_(1 - rate)
            else:
                model.inner[0].rate = rate
            fast(T(3))

    return program


def column(x: Any, at: int) -> Any:
    return x[:, at] * 2


def column_selected(x: Any, at: Any) -> Any:
    return x.index_select(1, at)[:, 0] * 2


def wound(*, passed: bool) -> Callable[[], Any]:
    def program() -> None:
        reel = Reel()
        fast = torch.compile(reel, backend="eager")
        for at in STEPS:
            reel.at = at
            fast(T(3, 2), at) if passed else fast(T(3, 2))

    return program


class Pressed(torch.nn.Module):
    """Clamps by one number, which makes a constant of that, and multiplies by another."""

    def __init__(self, *, tensors: bool) -> None:
        super().__init__()
        self.tensors, self.most, self.amp = tensors, 0.0, 0.0
        self.register_buffer("most_held", torch.tensor(0.0))
        self.register_buffer("amp_held", torch.tensor(0.0))

    def forward(self, x: Any) -> Any:
        if self.tensors:
            return torch.minimum(x * self.amp_held, 1 + self.most_held)
        return (x * self.amp).clamp(max=1 + self.most)


def pressed(*, tensors: bool = False) -> Callable[[], Any]:
    """Both numbers change in each call."""

    def program() -> None:
        press = Pressed(tensors=tensors)
        fast = torch.compile(press, backend="aot_eager")  # whose clamp() takes a Python number
        for rate in RATES:
            if tensors:
                press.most_held.fill_(rate)
                press.amp_held.fill_(rate / 3)
            else:
                press.most, press.amp = rate, rate / 3
            fast(torch.ones(3))

    return program


class Deep(torch.nn.Module):
    """A stack of layers some of which are left out in each step; as a list of bools, or as numbers in a buffer."""

    def __init__(self, *, gated: bool) -> None:
        super().__init__()
        self.gated, self.active = gated, [True, True, True]
        self.register_buffer("gates", torch.ones(3))

    def forward(self, x: Any) -> Any:
        if self.gated:
            for gate in self.gates:
                x = x + gate * (x.sin() - x)
            return x
        for on in self.active:
            if on:
                x = x.sin()
        return x


def deep(*, gated: bool) -> Callable[[], Any]:
    def program() -> None:
        model = Deep(gated=gated)
        fast = torch.compile(model, backend="eager")
        for active in ((1, 1, 1), (1, 0, 1), (1, 1, 0), (0, 1, 1), (0, 0, 1)):
            model.gates.copy_(torch.tensor(active))
            if not gated:
                model.active = [bool(one) for one in active]
            fast(torch.ones(3))

    return program


class Lion:
    """An optimizer of one's own: the step is passed, the rate is its attribute."""

    def __init__(self, rate: Any) -> None:
        self.rate = rate

    def update(self, x: Any, step: Any) -> Any:
        return x * self.rate / step


def updated(*, tensors: bool = False, **options: Any) -> Callable[[], Any]:
    def program() -> None:
        optimizer = Lion(torch.tensor(0.0) if tensors else 0.0)
        fast = torch.compile(optimizer.update, backend="eager", **options)
        for step, rate in zip(STEPS, RATES, strict=True):
            if tensors:
                optimizer.rate.fill_(rate)
            else:
                optimizer.rate = rate
            fast(T(3), torch.tensor(step) if tensors else step)

    return program


def scaled(x: Any, k: Any, t: Any) -> Any:
    return x * k / t


def pairs(*, wide: bool = False, dynamic: bool = False) -> Any:
    """Inputs whose sizes change together: both sizes of one, or one of each."""
    for n in (4, 6, 9):
        inputs = (T(n, 2 * n),) if wide else (T(n), T(2 * n))
        for one in inputs if dynamic else ():
            mark_dynamic(one, [0, 1] if wide else 0)
        yield inputs


def both_summed(x: Any, y: Any) -> Any:
    return x.sum() * y


class Told:
    """Computes with what its dict holds, whatever that is."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def forward(self, x: Any) -> Any:
        for one in self.held.values():
            x = x + one
        return x


def told(*, beforehand: bool) -> Callable[[], Any]:
    def program() -> None:
        voices = Told()
        fast = torch.compile(voices.forward, backend="eager")
        if beforehand:
            voices.held = {name: torch.zeros(3) for name in "abc"}
        for name in "abc":
            voices.held[name] = T(3)
            fast(T(3))

    return program


def by_name(x: Any, name: str) -> Any:
    return x * {"a": 2.0, "b": 3.0, "c": 4.0}[name]


CHANGING = [
    Case(
        "number that is needed",
        calls(picked, *((T(3), k) for k in (1, 2, 3))),
        "use few values",
        calls(picked, *((T(3), k) for k in (1, 2, 2))),
        left=1,
    ),
    Case(
        "passes, few",
        calls(repeated, *((T(3), k) for k in (2, 3, 4))),
        "let it take few values",
        calls(repeated, *((T(3), k) for k in (2, 4, 4))),
        left=1,
    ),
    Case(
        "passes, one turn",
        calls(repeated, *((T(3), k) for k in (2, 3, 4)), dynamic=True),
        "Compile what one turn computes, a function of its own, and leave the loop around it uncompiled",
        calls(turn, *((T(3),) for k in (2, 3, 4) for _ in range(k)), dynamic=True),
    ),
    Case(
        "passes, masked",
        calls(repeated, *((T(3), k) for k in (2, 3, 4))),
        "drop with torch.where what is beyond, with k in a tensor",
        calls(masked, *((T(3), torch.tensor(k)) for k in (2, 3, 4))),
    ),
    Case(
        "size that is passed",
        calls(spread, *((T(8), k) for k in STEPS)),
        "Take the largest size in each call, and mask with torch.where what is beyond",
        calls(spread_masked, *((T(8), torch.tensor(k)) for k in STEPS)),
    ),
    Case(
        "counter of a module",
        counts(Counting(2), STEPS),
        "or set torch._dynamo.config.allow_unspec_int_on_nn_module = True: PyTorch makes constants of a module's whole",
        with_config(counts(Counting(2), STEPS), allow_unspec_int_on_nn_module=True),
        left=1,
    ),
    Case(
        "counter of a module, dynamic",
        counts(Counting(2), STEPS[:2]),
        "Keep self.count in a tensor (a buffer, if it is a module's), where the code only computes with it; or pass ",
        with_config(counts(Counting(2), STEPS[:2], dynamic=True), allow_unspec_int_on_nn_module=True),
    ),
    Case(
        "counter of a module, dynamic, alone",
        counts(Counting(2), STEPS, dynamic=True),
        "PyTorch makes constants of a module's whole numbers, whatever is dynamic",
        with_config(counts(Counting(2), STEPS, dynamic=True), allow_unspec_int_on_nn_module=True),
    ),
    Case(
        "position that a module holds",
        wound(passed=False),
        "pass self.at as an argument of the call, where it is a variable from its first change on",
        wound(passed=True),
        left=1,
    ),
    Case(
        "one of several indices that a module holds",
        calls(Ribbon(tensor=False), *((T(3),) for _ in STEPS)),
        "write with index_copy_(), which take a tensor of one element, with self.at in a tensor (a buffer",
        calls(Ribbon(tensor=True), *((T(3),) for _ in STEPS)),
    ),
    Case(
        "one of several indices that is passed",
        calls(column, *((T(3, 9), k) for k in STEPS)),
        "Read there with index_select()",
        calls(column_selected, *((T(3, 9), torch.tensor([k])) for k in STEPS)),
    ),
    Case(
        "rate of a dropout further in",
        worn(tensor=False, dynamic=False),
        "computes as a mask with a rate that a tensor holds (x * (torch.rand_like(x) < keep) / keep",
        worn(tensor=True, dynamic=False),
    ),
    Case("number that is clamped by", pressed(), "in a tensor (a buffer, if it is", pressed(tensors=True)),
    Case(
        "counter of another object",
        counts(Schedule(), STEPS),
        "compile with dynamic=True, which makes it a variable of the graph from the first call",
        counts(Schedule(), STEPS, dynamic=True),
    ),
    Case(
        "schedule of a module",
        counts(Counting(0.5), RATES),
        "compile with dynamic=True, which makes it a variable of the graph from the first call",
        counts(Counting(0.5), RATES, dynamic=True),
    ),
    Case(
        "schedule, dynamic=False",
        counts(Counting(0.5), RATES, dynamic=False),
        "or compile without dynamic=False, which makes constants of all numbers",
        counts(Counting(0.5), RATES),
        left=1,
    ),
    Case(
        "schedule, floats specialised",
        with_config(counts(Counting(0.5), RATES), specialize_float=True),
        ". A float is a variable, unless torch._dynamo.config.specialize_float is set",
        counts(Counting(0.5), RATES),
        left=1,
    ),
    Case(
        "learning rate of a class of one's own",
        counts(Schedule(), RATES, dynamic=False),
        "in a tensor (a buffer, if it is a module's) instead of a Python number, where the code only computes with it",
        counts(Buffered(0.5), RATES, dynamic=False),
    ),
    Case("number of a function", counts(Leaky(0.5), RATES), "Write what ", counts(Bent(0.5), RATES)),
    Case("layers by turns", deep(gated=False), "x + on * (branch(x) - x)", deep(gated=True)),
    Case("two numbers", updated(), "As for ", updated(dynamic=True)),
    Case(
        "two numbers as tensors",
        updated(dynamic=False),
        "As for step: Pass step as a tensor",
        updated(tensors=True, dynamic=False),
    ),
    Case(
        "two numbers alike",
        calls(scaled, *((T(3), k, k + 1) for k in STEPS), dynamic=False),
        "Do the same for ",
        calls(scaled, *((T(3), torch.tensor(k), torch.tensor(k + 1)) for k in STEPS), dynamic=False),
    ),
    Case(
        "two sizes of one",
        calls(times, *pairs(wide=True)),
        "dimensions dynamic before the first call, torch._dynamo.maybe_mark_dynamic(x, [0, 1])",
        calls(times, *pairs(wide=True, dynamic=True)),
    ),
    Case(
        "sizes of two",
        calls(both_summed, *pairs()),
        "torch._dynamo.maybe_mark_dynamic(x, 0) and the same for y",
        calls(both_summed, *pairs(dynamic=True)),
    ),
    Case(
        "widths that are padded to multiples of one",
        calls(times, *((T(3, 8 * n),) for n in (2, 3, 4, 5, 6)), dynamic=False),
        "pad dimension 1 of x to one size, 48",
        calls(times, *((T(3, 48),) for _ in range(5)), dynamic=False),
    ),
    Case(
        "keys of an attribute",
        told(beforehand=False),
        " have all its keys before the first call",
        told(beforehand=True),
    ),
    Case(
        "names by turns",
        calls(by_name, *((T(3), name) for name in "abc")),
        "Choose outside the compiled function by name, and pass what it stands for, as a tensor",
        calls(times, *((T(3), torch.tensor(k)) for k in (2.0, 3.0, 4.0))),
    ),
]
