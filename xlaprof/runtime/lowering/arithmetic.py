"""Pointwise arithmetic."""

from __future__ import annotations

from typing import Any

from xlaprof.runtime.lowering.registry import Ctx, lower, opmath, scalar


@lower("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: Ctx, self: Any, other: Any, alpha: Any = 1) -> Any:
    self, other = opmath(ctx, self, other)
    return self + other * scalar(alpha, other.dtype)
