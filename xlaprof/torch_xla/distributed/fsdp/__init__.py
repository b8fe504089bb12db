"""``torch_xla.distributed.fsdp``: its helpers. Parameters are divided over devices by SPMD."""

from xlaprof.torch_xla._served import served as _served

from .utils import checkpoint_module

_SPMD = "mark the parameters with torch_xla.distributed.spmd.mark_sharding, or use SpmdFullyShardedDataParallel"

__getattr__ = _served(__name__, submodules=("utils", "wrap"), XlaFullyShardedDataParallel=_SPMD)
__all__ = ["checkpoint_module"]
