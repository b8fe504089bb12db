"""``torch_xla.experimental.gru``: ``nn.GRU`` whose steps are one XLA loop, however long the sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .scan import scan

State = tuple[torch.Tensor, ...]


class GRU(nn.GRU):
    """``nn.GRU`` in one direction: with ``bidirectional=True`` it is ``nn.GRU`` itself, whose steps are recorded each.

    Raises ``NotImplementedError`` for a ``PackedSequence``.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return nn.GRU(*args, **kwargs) if kwargs.get("bidirectional") else super().__new__(cls)

    def forward(  # type: ignore[override]
        self, input: torch.Tensor, hx: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``(output, h_n)``, of the shapes that ``nn.GRU`` takes and returns."""
        if isinstance(input, PackedSequence):
            raise NotImplementedError("torch_xla.experimental.gru.GRU takes no PackedSequence: use torch.nn.GRU")
        if input.dim() not in (2, 3):
            raise ValueError(f"GRU: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if hx is not None and hx.dim() != input.dim():
            raise RuntimeError(f"GRU: hx has {hx.dim()} dimensions and the input {input.dim()}: as many are needed")
        batched = input.dim() == 3
        batch = 0 if self.batch_first and batched else 1
        steps = input if batched else input.unsqueeze(batch)
        if hx is None:
            hx = steps.new_zeros(self.num_layers, steps.size(batch), self.hidden_size)
        elif not batched:
            hx = hx.unsqueeze(1)
        steps = steps.transpose(0, 1) if batch == 0 else steps
        last = []
        for layer, state in enumerate(hx):
            if layer and self.dropout:
                steps = F.dropout(steps, self.dropout, self.training)
            weights = (getattr(self, name) for name in self._all_weights[layer])
            (state, *_), steps = scan(_step, (state, *weights), steps, is_fn_pure=True)
            last.append(state)
        hidden = torch.stack(last)
        if not batched:
            return steps.squeeze(batch), hidden.squeeze(1)
        return steps.transpose(0, 1) if batch == 0 else steps, hidden


def _step(carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
    """One step of a layer: the state and the layer's weights, and what the step takes."""
    state, *weights = carry
    state = torch.gru_cell(x, state, *weights)
    return (state, *weights), state
