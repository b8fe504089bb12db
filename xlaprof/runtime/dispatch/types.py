"""Types of a call's arguments, as ``__torch_dispatch__`` gets them, and of handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[[Args, Kwargs], Any]
