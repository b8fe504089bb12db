"""Two corners of PyTorch's autograd engine that a device in Python meets, and a device in C++ does not.

The engine counts devices when the first backward pass of the process begins, and never again: one that ran before
:mod:`xlaprof.runtime` was imported leaves ``xla`` without a thread. Nothing can be done about it then but to say so.

The thread that works for ``xla`` lets go of a backward pass a moment after ``backward()`` has returned. Its tensors are
Python objects: if the interpreter is being finalized by then, the attempt to take its lock ends the thread in the
middle of C++, and the process with it. So at exit the thread is given another, empty task; when that is done, so is all
before it.
"""

from __future__ import annotations

import atexit
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

#: s at exit in which the thread may let go of the last, empty task
_LET_GO_S = 0.02


class _State:
    ran = False  # a backward pass, in this process


class _Empty(torch.Tensor):
    """A tensor on ``xla`` with no value, for a backward pass that computes nothing."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise AssertionError(f"an empty backward pass has computed {func}")


def _empty() -> torch.Tensor:
    return torch.Tensor._make_wrapper_subclass(_Empty, (), dtype=torch.float32, device=torch.device("xla", 0))


class _Hand(torch.autograd.Function):
    """Hands the gradient on."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return _empty()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def _settle() -> None:
    """Return when the thread has let go of every backward pass so far."""
    if _State.ran:
        x = _empty().requires_grad_()
        torch.autograd.grad(_Hand.apply(x), x, _empty())  # type: ignore[no-untyped-call]
        time.sleep(_LET_GO_S)


def _explained(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        try:
            result = run(*args, **kwargs)
        except RuntimeError as error:
            if "device_ready_queues_" not in str(error):
                raise
            raise RuntimeError(
                "a backward pass ran in this process before xlaprof.runtime was imported, and PyTorch's autograd "
                "engine counts devices only once: import xlaprof.runtime at the top of the program"
            ) from error
        _State.ran = True
        return result

    return run_backward


def install() -> None:
    """Explain the one, prevent the other."""
    wrapped = _explained(torch.autograd.graph._engine_run_backward)
    for module in (torch.autograd, torch.autograd.graph):  # the one imports it by name from the other
        setattr(module, "_engine_run_backward", wrapped)  # noqa: B010  # a private name, unknown to type checkers
    atexit.register(_settle)
