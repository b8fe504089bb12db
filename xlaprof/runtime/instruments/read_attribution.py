"""The library function through which a value was read, between the line that acts and ours.

``loss.item()`` is plainly a read; ``clip_grad_norm_(..., error_if_nonfinite=True)``, ``scaler.step(optimizer)`` and
``f"{loss}"`` are not. Looked up once for each place.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

from xlaprof.recording import stacks
from xlaprof.recording.stacks import OWN, RawFrame, acts, is_library
from xlaprof.runtime.trace import source

#: the modules of PyTorch/XLA, of which programs call functions: ``xm.mesh_reduce``
_FACADE = os.path.join(OWN, "torch_xla") + os.sep
#: functions that only call what they wrap
_WRAPPERS = frozenset(
    {"Module._call_impl", "Module._wrapped_call_impl", "OpOverload.__call__", "OpOverloadPacket.__call__"}
)
#: methods of tensors that programs do not call by name, defined by PyTorch or by this runtime
_METHODS = frozenset({"__repr__", "__str__", "__format__", "__contains__", "__array__", "__iter__", "__deepcopy__"})
#: what has autograd's own thread, which calls nothing of Python's, read each gradient
_ANOMALY = "detect_anomaly"
_DEPTH = 60  # frames looked at
_LIMIT = 10_000  # places remembered

_known: dict[tuple[tuple[RawFrame, ...], str], str] = {}


def caller(frames: tuple[RawFrame, ...], op: str) -> str:
    """Name of the function of PyTorch's or Python's that a line called and that led to ``op``.

    The line is the user's (the first of ``frames``), or a library's below it. Empty where it called a tensor's method.
    """
    key = (frames, op)
    name = _known.get(key)
    if name is None:
        if len(_known) >= _LIMIT:
            _known.clear()
        name = _known[key] = _outermost(sys._getframe(1)) if frames else ""
    return name or (_ANOMALY if torch.is_anomaly_enabled() and not stacks.user_frames(1) else "")


def _outermost(innermost: FrameType) -> str:
    """The outermost function with a useful name, between ``innermost`` and the first line that acts."""
    name = ""
    for frame in source.outward(innermost, _DEPTH):
        code = frame.f_code
        if code.co_name in _METHODS:
            name = f"Tensor.{code.co_name}"
        elif code.co_filename.startswith(_FACADE) or not code.co_filename.startswith((OWN, "<frozen")):
            if acts(code.co_filename) or not is_library(code.co_filename, frame.f_globals.get("__name__")):
                return name
            if "<" not in code.co_qualname and code.co_qualname not in _WRAPPERS:
                name = code.co_qualname
        elif code.co_filename.startswith(OWN):
            name = name if name.startswith("Tensor.") else ""  # what this runtime calls, the line did not call
    return ""
