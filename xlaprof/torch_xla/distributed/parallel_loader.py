"""``torch_xla.distributed.parallel_loader``, customarily ``pl``."""

from xlaprof.runtime.loader import MpDeviceLoader, ParallelLoader, PerDeviceLoader

__all__ = ["MpDeviceLoader", "ParallelLoader", "PerDeviceLoader"]
