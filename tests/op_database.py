"""PyTorch's OpInfo database, for the tests that try many of its operators."""

from __future__ import annotations

import warnings
from typing import Any

#: compile options for programs that run a few times: XLA compiles about three times as fast without optimising
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def entries() -> dict[str, Any]:
    """The database: ``"name"`` or ``"name.variant"`` -> entry."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}
