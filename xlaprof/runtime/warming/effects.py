"""What a step changes besides values on the device: gradients, optimizers, schedulers, buffers, random states."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.amp import GradScaler
from torch.optim.lr_scheduler import LRScheduler

from xlaprof.runtime.tape import randomness, tapes
from xlaprof.runtime.trace.tensor import XLATensor

Undo = Callable[[], object]


#: kinds of objects whose state is put back
_KINDS = (XLATensor, torch.nn.Module, torch.optim.Optimizer, LRScheduler, GradScaler)
#: for so long no other thread takes the interpreter's lock while objects are looked at
_ALONE_S = 0.25


def tensors() -> list[XLATensor]:
    """All tensors on ``xla`` that Python knows of."""
    return _all_of((XLATensor,))


def _all_of(kinds: tuple[type, ...]) -> list[Any]:
    """All objects of these kinds.

    No other thread may run meanwhile: one that makes a tuple fails where somebody else holds it before it is complete.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_ALONE_S)
    try:
        begun = time.perf_counter() + 2 * before
        while time.perf_counter() < begun:  # who waits for the lock with the interval before has it once more
            pass
        # type(): isinstance asks the object, which may be a proxy that does something then
        return [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    finally:
        sys.setswitchinterval(before)


def remember() -> list[Undo]:
    """Calls that put back what there is now, of all modules, leaves, optimizers, schedulers and scalers."""
    undo: list[Undo] = _random_states()
    for one in _all_of(_KINDS):
        kind = type(one)
        if kind is XLATensor:
            if _is_leaf(one):
                undo += [_attribute(one, "grad"), _attribute(one, "_storage")]
        elif issubclass(kind, torch.nn.Module):
            undo += [_contents(one._parameters), _contents(one._buffers), _attribute(one, "training")]
        elif issubclass(kind, torch.optim.Optimizer):
            undo += _optimizer(one)
        elif issubclass(kind, LRScheduler | GradScaler):
            undo += _nested(one.__dict__)
    return undo


def _is_leaf(tensor: XLATensor) -> bool:
    """Does it collect a gradient?"""
    try:
        return tensor.is_leaf and tensor.requires_grad
    except RuntimeError:  # one of several views whose base was written to: autograd answers nothing about it any more
        return False


def _attribute(of: Any, name: str) -> Undo:
    before = getattr(of, name)
    return lambda: setattr(of, name, before)


def _contents(of: dict[Any, Any]) -> Undo:
    before = dict(of)

    def put_back() -> None:
        of.clear()
        of.update(before)

    return put_back


def _nested(of: dict[Any, Any]) -> list[Undo]:
    inner = [undo for value in of.values() if isinstance(value, dict) for undo in _nested(value)]
    return [_contents(of), *inner]


def _optimizer(optimizer: torch.optim.Optimizer) -> list[Undo]:
    states = [state for state in optimizer.state.values() if isinstance(state, dict)]
    on_host = [_host_value(value) for state in states for value in state.values() if _is_on_host(value)]
    return [*_nested(optimizer.state), *map(_contents, optimizer.param_groups), *on_host]


def _is_on_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and type(value) is not XLATensor and value.device.type == "cpu"


def _host_value(tensor: torch.Tensor) -> Undo:
    before = tensor.detach().clone()

    def put_back() -> None:
        with torch.no_grad():
            tensor.copy_(before)

    return put_back


def _random_states() -> list[Undo]:
    python, numpy, host = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = {tape.index: randomness.get_rng_state(tape.index) for tape in tapes.existing()}

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(host)
        for index, state in devices.items():
            randomness.set_rng_state(state, index)

    return [put_back]
