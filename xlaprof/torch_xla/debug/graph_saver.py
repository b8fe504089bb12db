"""``torch_xla.debug.graph_saver``: pending graphs in files."""

from __future__ import annotations

import os

import torch

from xlaprof.torch_xla import _graphs


def save_tensors_graph(save_dir: str, name: str, tensors: list[torch.Tensor]) -> None:
    """Write the pending graph of ``tensors`` into ``save_dir``, as ``{name}-hlo.txt``, ``-ir.txt`` and ``-dot.txt``."""
    for kind, text in (("hlo", _graphs.hlo), ("ir", _graphs.text), ("dot", _graphs.dot)):
        with open(os.path.join(save_dir, f"{name}-{kind}.txt"), "w") as file:
            file.write(text(tensors))
