"""``torch_xla.distributed.fsdp``: parameters divided among processes."""

from xlaprof.torch_xla._served import names as _names
from xlaprof.torch_xla._served import served as _served

from .utils import checkpoint_module

_HOMES = dict.fromkeys(
    ("XlaFullyShardedDataParallel", "consolidate_sharded_model_checkpoints", "consolidate_sharded_state_dicts"),
    "xlaprof.runtime.distributed.fsdp",
)

__getattr__ = _served(
    __name__,
    _HOMES,
    ("consolidate_sharded_ckpts", "state_dict_utils", "utils", "wrap", "xla_fully_sharded_data_parallel"),
)
__dir__ = _names(__name__, _HOMES)
__all__ = [  # served when they are named
    "XlaFullyShardedDataParallel",
    "checkpoint_module",
    "consolidate_sharded_model_checkpoints",
    "consolidate_sharded_state_dicts",
]
