"""``torch_xla.distributed.spmd.xla_sharding``."""

from xlaprof.torch_xla._served import served as _served
from xlaprof.torch_xla.distributed import spmd as _spmd

__getattr__ = _served(__name__, _spmd._HOMES)
