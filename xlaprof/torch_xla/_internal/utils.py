"""``torch_xla._internal.utils``."""

from __future__ import annotations

import re


def parse_xla_device(device: str) -> tuple[str, int] | None:
    """``("CPU", 0)`` for ``"CPU:0"``; ``None`` for anything else."""
    match = re.match(r"([A-Z]+):(\d+)$", device)
    return (match[1], int(match[2])) if match else None
