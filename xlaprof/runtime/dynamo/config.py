"""Settings of ``torch.compile(backend="openxla")``, under PyTorch/XLA's names."""

from __future__ import annotations

#: Trust that no input is pending, without a check; a pending one raises ``RuntimeError``.
skip_input_data_check = False
