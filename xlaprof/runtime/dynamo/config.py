"""Settings of ``torch.compile(backend="openxla")``, under PyTorch/XLA's names."""

from __future__ import annotations

#: Trust that no input is pending, which saves asking; one that is raises ``RuntimeError``.
skip_input_data_check = False
