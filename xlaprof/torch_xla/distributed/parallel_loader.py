"""``torch_xla.distributed.parallel_loader``, customarily ``pl``."""

from xlaprof.runtime.transfer.loader import MpDeviceLoader, ParallelLoader, PerDeviceLoader

__all__ = ["MpDeviceLoader", "ParallelLoader", "PerDeviceLoader"]
