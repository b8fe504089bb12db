"""A call as ``__torch_dispatch__`` hands it on, and what takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[[Args, Kwargs], Any]
