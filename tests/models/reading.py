"""Who reads values from the device: the line of every operation that does, as Python sees it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from xlaprof.runtime import XLATensor

_READS = ("aten._local_scalar_dense.default", "aten.nonzero.default")


class Reads(TorchDispatchMode):
    """While it is active, ``lines`` collects ``file.py:line`` of the code that reads a number or a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ours = bool(args) and isinstance(args[0], XLATensor)
        device = (kwargs or {}).get("device")
        to_host = str(func) == "aten._to_copy.default" and device is not None and torch.device(device).type == "cpu"
        if ours and (str(func) in _READS or to_host):
            frame = next(f for f in reversed(traceback.extract_stack()[:-1]) if "/torch/" not in f.filename)
            self.lines.append(f"{Path(frame.filename).name}:{frame.lineno}")
        return func(*args, **(kwargs or {}))
