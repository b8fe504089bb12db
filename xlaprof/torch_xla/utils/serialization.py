"""``torch_xla.utils.serialization``, customarily ``xser``: each tensor in a file of its own.

So only one tensor at a time is on the host.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch

from xlaprof.runtime.trace import nested
from xlaprof.torch_xla.core import xla_model as xm


class TensorReference:
    """Stands for the tensor number ``tid`` in what :func:`save` wrote."""

    def __init__(self, tid: int, dtype: torch.dtype | None = None) -> None:
        self.tid = tid
        self.dtype = dtype


def _folder(path: str) -> str:
    return f"{path}.tensors"


def _file(path: str, tid: int) -> str:
    return os.path.join(_folder(path), f"tensor_{tid}.pt")


def save(data: Any, path: str, master_only: bool = True, global_master: bool = False, **more: Any) -> None:
    """Write ``data`` to ``path`` and its ``xla`` tensors to files in ``path.tensors``.

    With ``master_only`` only the master of each host writes, with ``global_master`` only that of all hosts.
    """
    writes = not master_only or xm.is_master_ordinal(local=not global_master)
    tensors = nested.tensors(data, xm.is_xla_tensor)
    xm.unlazy(tensors)
    if not writes:
        return
    shutil.rmtree(_folder(path), ignore_errors=True)
    os.mkdir(_folder(path))
    for number, tensor in enumerate(tensors):
        torch.save(tensor.detach().cpu(), _file(path, number))
    references = {id(tensor): TensorReference(number, tensor.dtype) for number, tensor in enumerate(tensors)}
    torch.save(nested.rewritten(data, lambda v: id(v) in references, lambda v: references[id(v)]), path)


def load(path: str, **more: Any) -> Any:
    """Read what :func:`save` wrote; tensors arrive on the host."""
    data = torch.load(path, weights_only=False)
    return nested.rewritten(data, lambda v: isinstance(v, TensorReference), lambda v: torch.load(_file(path, v.tid)))
