"""The user's line and module of a recorded operation, looked up only when the trie grows."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from xlaprof.recording import stacks
from xlaprof.recording.stacks import RawFrame

#: outermost modules whose forward was recorded: where :mod:`.naming` looks for a parameter's path
roots: dict[int, weakref.ref[torch.nn.Module]] = {}
_ROOTS = 64
#: frames searched for modules and for the part of training
_DEPTH = 80
_OPTIM = os.path.dirname(torch.optim.__file__)
_FUNCTIONAL = torch.nn.functional.__file__
_CLIP = os.path.join(os.path.dirname(torch.nn.utils.__file__), "clip_grad.py")
_SCALER = torch.amp.grad_scaler.__file__
_AUTOCAST = os.path.join(os.path.dirname(os.path.dirname(__file__)), "pytorch", "autocast.py")
#: functions that behave differently in training and in evaluation
_MODES = frozenset(
    {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "batch_norm",
     "instance_norm", "rrelu", "_verify_batch_size"}
)  # fmt: skip


def outward(frame: FrameType | None, limit: int = sys.maxsize) -> Iterator[FrameType]:
    """``frame`` and those that called it, at most ``limit``."""
    for _ in range(limit):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def here() -> tuple[tuple[RawFrame, ...], str]:
    """``(user's frames innermost first, nn.Module path)`` of the operation being recorded.

    On autograd's own thread there is no user code: the frames are then those of the thread that waits in
    ``backward()``.
    """
    given: tuple[tuple[RawFrame, ...], str] | None = getattr(_thread, "place", None)
    if given is not None:
        return given
    frames = stacks.user_frames()
    named = getattr(_thread, "scopes", None)
    if frames and torch._C._current_autograd_node() is None:
        return frames, "/".join([*named, module_path()]).rstrip("/") if named else module_path()
    return _backward_frames() or frames, "/".join(named) if named else ""


_thread = threading.local()


def scopes() -> list[str]:
    """Names of the profiler's scopes open on this thread, outermost first. Recorded operations carry them."""
    found: list[str] = _thread.__dict__.setdefault("scopes", [])
    return found


@contextmanager
def at(frames: tuple[RawFrame, ...], module: str) -> Iterator[None]:
    """Within, what this thread records gets ``frames`` and ``module`` in place of those on its stack."""
    before, _thread.place = getattr(_thread, "place", None), (frames, module)
    try:
        yield
    finally:
        _thread.place = before


def acting() -> tuple[RawFrame, ...]:
    """The user's frames that are at work: this thread's, or on autograd's own those that wait in ``backward()``."""
    return stacks.user_frames() or _backward_frames()


def _backward_frames() -> tuple[RawFrame, ...]:
    """Frames of the thread that waits in ``backward()``: the main thread if it does, else another."""
    here = threading.get_ident()
    main = threading.main_thread().ident
    others = [t.ident for t in threading.enumerate() if t.ident != main]
    for ident in (main, *others):
        if ident is None or ident == here:
            continue
        with stacks.looking:
            if any(frame.f_code.co_name == stacks.WAITS_FOR_BACKWARD for frame in stacks.running(ident)):
                return stacks.frames_of_thread(ident)
    return ()


def role() -> str:
    """Which part of training records the operation: one of :attr:`xlaprof.events.Change.role`."""
    node = torch._C._current_autograd_node()
    if node is not None:
        return "grad" if node.name().endswith("AccumulateGrad") else "backward"
    for frame in outward(sys._getframe(1), _DEPTH):
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(_OPTIM):
            return _IN_OPTIMIZER.get(name, "optimizer")
        if file == _SCALER and name == "_lazy_init_scale_growth_tracker":
            return "state"
        if file == _FUNCTIONAL and name in _MODES:
            return "mode"
        if file == _CLIP:
            return "clip"
        if name == "_cast" and file == _AUTOCAST:
            return "autocast"
        if name == "zero_grad":  # a module's
            return "zero_grad"
    return ""


_IN_OPTIMIZER = {"_init_group": "state", "zero_grad": "zero_grad"}


def module_path() -> str:
    """Class names of the ``nn.Module``s whose ``forward`` runs, outermost first: ``"Decoder/Block/Attention"``."""
    names: list[str] = []
    outermost = None
    for frame in outward(sys._getframe(1), _DEPTH):
        if frame.f_code.co_name == "forward":
            owner = frame.f_locals.get("self")
            if isinstance(owner, torch.nn.Module):
                names.append(type(owner).__name__)
                outermost = owner
    if outermost is not None and ((known := roots.get(id(outermost))) is None or known() is not outermost):
        if len(roots) >= _ROOTS:  # the id of a module that is gone comes again
            roots.clear()
        roots[id(outermost)] = weakref.ref(outermost)
    return "/".join(reversed(names))
