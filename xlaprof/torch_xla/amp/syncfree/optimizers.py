"""Optimizers whose ``step(found_inf=...)`` does nothing where ``found_inf`` is not 0, decided on the device.

PyTorch's own step runs, ``capturable`` so that the count of steps is on the device too. Where it has to be skipped,
every tensor that it wrote gets its previous value back: one graph, no reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

_Closure = Callable[[], float] | None


def _step(optimizer: Any, closure: _Closure, found_inf: torch.Tensor | None, step: Callable[..., Any]) -> Any:
    if found_inf is None:
        return step(closure=closure)
    if found_inf.shape:
        raise ValueError("The found_inf tensor has to be scalar type")
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    skip = found_inf != 0
    before = {id(tensor): tensor.clone() for tensor in _written(optimizer)}
    step()
    for tensor in _written(optimizer):
        # state that the first step creates begins at zero: also SGD's momentum, whose first value is a gradient
        old = before.get(id(tensor))
        tensor.copy_(torch.where(skip, torch.zeros_like(tensor) if old is None else old, tensor))
    return loss


def _written(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The tensors that a step writes: parameters with gradients, and their state."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                yield p
                yield from (value for value in optimizer.state[p].values() if isinstance(value, torch.Tensor))


class _Capturable:
    """An optimizer with its count of steps on the device, whose ``step`` takes ``found_inf``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"capturable": True, "foreach": False, **kwargs})

    @torch.no_grad()
    def step(self, closure: _Closure = None, found_inf: torch.Tensor | None = None) -> Any:
        """A step, unless ``found_inf``, a 0-dim tensor, is given and is not 0. Returns what ``closure`` returned."""
        return _step(self, closure, found_inf, super().step)  # type: ignore[misc]


class Adam(_Capturable, torch.optim.Adam):
    """``torch.optim.Adam`` whose ``step`` takes ``found_inf``, a 0-dim tensor."""


class AdamW(_Capturable, torch.optim.AdamW):
    """``torch.optim.AdamW`` whose ``step`` takes ``found_inf``, a 0-dim tensor."""


class SGD(torch.optim.SGD):
    """``torch.optim.SGD`` whose ``step`` takes ``found_inf``, a 0-dim tensor."""

    @torch.no_grad()
    def step(self, closure: _Closure = None, found_inf: torch.Tensor | None = None) -> Any:
        """A step, unless ``found_inf`` is given and is not 0. Returns what ``closure`` returned."""
        return _step(self, closure, found_inf, super().step if found_inf is None else self._damped(found_inf))

    def _damped(self, found_inf: torch.Tensor) -> Callable[[], Any]:
        """A step that begins momentum with an undampened gradient, as PyTorch's first step does.

        A skipped first step leaves zeros, and the next one would dampen its gradient: that part is added beforehand.
        """
        whole = super().step
        begins: dict[torch.Tensor, torch.Tensor] = self.__dict__.setdefault("_begins", {})

        def step() -> None:
            damped = [g for g in self.param_groups if g["momentum"] and g["dampening"]]
            for group, p in ((g, p) for g in damped for p in g["params"] if p.grad is not None):
                held = self.state[p].get("momentum_buffer")
                if held is not None and p in begins:
                    gradient = (-p.grad if group["maximize"] else p.grad) + group["weight_decay"] * p
                    held.add_(begins[p] * gradient * (group["dampening"] / group["momentum"]))
                if held is None:
                    begins[p] = (found_inf != 0).to(p.dtype)
                elif p in begins:
                    begins[p] = begins[p] * (found_inf != 0).to(p.dtype)
            whole()

        return step
