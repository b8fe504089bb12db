"""``torch_xla.distributed.xla_multiprocessing``, customarily ``xmp``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(
    __name__, dict.fromkeys(("MpModelWrapper", "MpSerialExecutor", "spawn"), "xlaprof.runtime.distributed")
)
