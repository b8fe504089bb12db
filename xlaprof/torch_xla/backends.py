"""``torch_xla.backends``: how exact products are on hardware that has a choice."""

from __future__ import annotations

import logging

from xlaprof.torch_xla import _XLAC

__all__ = ["get_mat_mul_precision", "set_mat_mul_precision"]

logger = logging.getLogger("torch_xla.backends")
_WARNING_MESSAGE = "set the precision once, first of all: functions under torch.compile keep the one they began with"


def set_mat_mul_precision(precision: str) -> None:
    """``"default"``, ``"high"`` or ``"highest"`` for products and convolutions of float32.

    A TPU computes them by one, three or six passes in bfloat16; a CPU does not differ. Raises ``ValueError`` for any
    other word. It warns at each call, as PyTorch/XLA does.
    """
    _XLAC._xla_set_mat_mul_precision(precision)
    logger.warning(_WARNING_MESSAGE)


def get_mat_mul_precision() -> str:
    """``"default"``, ``"high"`` or ``"highest"``."""
    return _XLAC._xla_get_mat_mul_precision()
