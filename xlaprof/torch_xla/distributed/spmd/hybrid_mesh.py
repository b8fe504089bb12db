"""``xs.HybridMesh`` over the devices of ``torch_xla.runtime``, which PyTorch/XLA's own tests patch."""

from __future__ import annotations

from typing import Any

from xlaprof.runtime import spmd
from xlaprof.torch_xla import runtime


class HybridMesh(spmd.HybridMesh):
    __doc__ = spmd.HybridMesh.__doc__

    def _attributes(self) -> list[dict[str, Any]]:
        return list(runtime.global_runtime_device_attributes())
