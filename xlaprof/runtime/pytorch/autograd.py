"""Threads of PyTorch's autograd engine for ``xla``: that there are some, and that they end before the interpreter.

The engine counts devices when the first backward pass of the process begins, and never again: a pass that ran before
:mod:`xlaprof.runtime` was imported leaves ``xla`` without a thread. So an empty pass runs before the first one after
the import; if it finds no thread, :mod:`.engine` starts them.

A device's thread releases the tensors of a backward pass a moment after ``backward()`` has returned. They are Python
objects: if the interpreter is already being finalized, taking its lock ends the thread in the middle of C++, and the
process with it. So each thread gets an empty task at exit; when that is done, so are all before it. A barrier that
would count tensors which are about to be released waits in the same way (``Tape.let_go``).
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from xlaprof.recording import stacks
from xlaprof.runtime.tape import tapes

from . import engine, transforms

#: s at exit for the threads to release the last, empty task
_LET_GO_S = 0.02
#: s that sampling our frames may take
_LOOK_S = 0.1
#: what the engine's assertion names when a device has no thread
_NO_THREAD = "device_ready_queues_"


class _State:
    lock = threading.RLock()
    ready = False  # the threads exist, or cannot be started
    trying = False
    ran = False  # a backward pass, in this process


class _Empty(torch.Tensor):
    """A tensor on ``xla`` with no value, for a backward pass that computes nothing."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise AssertionError(f"an empty backward pass has computed {func}")


def _empty(index: int) -> torch.Tensor:
    return torch.Tensor._make_wrapper_subclass(_Empty, (), dtype=torch.float32, device=torch.device("xla", index))


class _Identity(torch.autograd.Function):
    """The identity: hands the gradient on."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return _empty(x.device.index)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def _empty_pass(index: int) -> None:
    """A backward pass on ``xla:index`` that computes nothing."""
    # outside any transform of torch.func that is running, and of anomaly detection, which would look at the values
    watched = torch.autograd.set_detect_anomaly(False) if torch.is_anomaly_enabled() else nullcontext()
    with watched, temporarily_clear_interpreter_stack(), torch.inference_mode(False), torch.enable_grad():
        x = _empty(index).requires_grad_()
        torch.autograd.grad(_Identity.apply(x), x, _empty(index))  # type: ignore[no-untyped-call]


def _get_ready() -> None:
    """Make sure that there is a thread for ``xla``, whatever ran in this process before."""
    with _State.lock:
        if _State.ready or _State.trying:  # trying: this is the empty pass
            return
        _State.trying = True
        try:
            _empty_pass(0)
        except RuntimeError as error:
            if _NO_THREAD not in str(error):
                raise
            engine.start_threads()
        finally:
            _State.trying = False
        _State.ready = True


def _settle(index: int) -> None:
    """Return when the thread of ``xla:index`` holds no backward pass any more, and no sampler our frames."""
    if stacks.looking.acquire(timeout=_LOOK_S):
        stacks.looking.release()
    try:
        _empty_pass(index)
    except RuntimeError as error:
        if _NO_THREAD not in str(error):
            raise


def _at_exit() -> None:
    if _State.ran:
        for tape in tapes.existing():
            _settle(tape.index)
        time.sleep(_LET_GO_S)


def _require_same_device(outputs: Sequence[Any] = (), gradients: Sequence[Any] = (), *_: Any) -> None:
    """Raise PyTorch's error for a gradient on another device than its tensor: the engine checks C++ tensors only."""
    for i, (output, gradient) in enumerate(zip(outputs, gradients, strict=False)):
        if isinstance(output, torch.Tensor) and isinstance(gradient, torch.Tensor) and gradient.dim():
            here, there = gradient.device, output.device
            if here != there and "xla" in (here.type, there.type):
                raise RuntimeError(f"invalid gradient at index {i} - expected device {there} but got {here}")


def _prepared(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if not _State.ready:
            _get_ready()
        _require_same_device(*args[:2])
        try:
            result = run(*args, **kwargs)
        except RuntimeError as error:
            if _NO_THREAD not in str(error) or _State.trying:
                raise
            raise RuntimeError(
                "PyTorch's autograd engine has no thread for this xla device: it counts devices only once, in the "
                "first backward pass of a process. Import xlaprof.runtime at the top of the program"
            ) from error
        if isinstance(args[0][0], _Empty):
            return result
        _State.ran = True
        for tape in tapes.existing():
            tape.let_go = functools.partial(_settle, tape.index)
        return result

    return run_backward


def install() -> None:
    """Make the engine start its threads, and let them finish before the interpreter exits."""
    transforms.install()
    engine.count_devices()
    prepared = _prepared(torch.autograd.graph._engine_run_backward)
    for module in (torch.autograd, torch.autograd.graph):  # the one imports it by name from the other
        setattr(module, "_engine_run_backward", prepared)  # noqa: B010  # a private name, unknown to type checkers
    atexit.register(_at_exit)
