"""``xs.HybridMesh`` over the devices that ``torch_xla.runtime`` tells of, which PyTorch/XLA's own tests replace."""

from __future__ import annotations

from typing import Any

from xlaprof.runtime import spmd
from xlaprof.torch_xla import runtime


class HybridMesh(spmd.HybridMesh):
    __doc__ = spmd.HybridMesh.__doc__

    def _attributes(self) -> list[dict[str, Any]]:
        return list(runtime.global_runtime_device_attributes())
