"""``torch_xla.debug.model_comparator``, customarily ``mc``: tensors of two runs of a model, saved and compared."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from xlaprof.runtime import distributed

#: the folder that :func:`save` writes to, and how often it wrote each name
_saving = SimpleNamespace(folder=None, step=None, counts={})


def configure(save_dir: str | None) -> None:
    """Save into the folder ``save_dir`` from now on; ``None``: into ``MODELCMP_SAVEDIR``, if that is set."""
    _saving.folder, _saving.step, _saving.counts = save_dir, None, {}


def save(name: str | None, tensor: torch.Tensor, step: int | None = None) -> torch.Tensor:
    """Save the tensor's value, by default under the file and line of the caller, and return the tensor."""
    folder = _saving.folder or os.environ.get("MODELCMP_SAVEDIR")
    if folder is None:
        return tensor
    value = tensor.detach().cpu()
    if not distributed.is_master_ordinal():
        return tensor
    if name is None:
        frame = sys._getframe(1)
        name = f"{os.path.basename(frame.f_code.co_filename)}.l{frame.f_lineno}"
    if step is not None:
        folder = os.path.join(folder, f"step-{step}")
        os.makedirs(folder, exist_ok=True)
        if step != _saving.step:
            _saving.step, _saving.counts = step, {}
    number = _saving.counts.get(name, 0)
    _saving.counts[name] = number + 1
    torch.save(value, os.path.join(folder, f"{name}.{number}"))
    return tensor


def compare_tensors(
    tensor1: torch.Tensor, tensor2: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25
) -> str:
    """A line for each element that differs, ``max_diffs`` at most: ``[0, 3]: 1.0 vs. 2.0``."""
    if tensor1.shape != tensor2.shape:
        return f"Tensors have different shape: {list(tensor1.shape)} vs. {list(tensor2.shape)}\n"
    unlike = ~torch.isclose(tensor1, tensor2.to(tensor1.dtype), rtol=rtol, atol=atol, equal_nan=True)
    lines = [
        f"{index}: {tensor1[tuple(index)].item()} vs. {tensor2[tuple(index)].item()}\n"
        for index in unlike.nonzero()[:max_diffs].tolist()
    ]
    if int(unlike.sum()) > max_diffs:
        lines.append(f"... aborting after {max_diffs} differences\n")
    return "".join(lines)


def compare(save_dir1: str, save_dir2: str, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25) -> str:
    """The differences between the tensors saved in two folders; empty if there are none."""
    files1, files2 = _saved(save_dir1), _saved(save_dir2)
    report = []
    for path in files1:
        if path not in files2:
            report.append(f"Mismatch: {path} not in {save_dir2}\n")
            continue
        first, second = (torch.load(os.path.join(folder, path)) for folder in (save_dir1, save_dir2))
        lines = compare_tensors(first, second, rtol, atol, max_diffs).splitlines()
        if lines:
            step = re.match(r"step-(\d+)/", path)
            name, _, number = os.path.basename(path).rpartition(".")
            report.append(f'Changes in saved tensor "{name}" with id={number}{f" at step={step[1]}" if step else ""}\n')
            report.extend(f"  {line}\n" for line in lines)
    report.extend(f"Mismatch: {path} not in {save_dir1}\n" for path in files2 if path not in files1)
    return "".join(report)


def _saved(folder: str) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if re.search(r"\.\d+$", path.name)
    )
