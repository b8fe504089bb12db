"""``torch_xla.experimental.distributed_checkpoint._helpers``."""

from xlaprof.runtime.spmd.checkpoint.states import CpuShards as _CpuShards
from xlaprof.runtime.spmd.checkpoint.states import flattened as flatten_state_dict
from xlaprof.runtime.spmd.checkpoint.states import is_sharded as _is_sharded_tensor
from xlaprof.runtime.spmd.checkpoint.states import put as set_element
from xlaprof.runtime.spmd.checkpoint.states import sharded_cpu_state_dict as _sharded_cpu_state_dict

__all__ = ["_CpuShards", "_is_sharded_tensor", "_sharded_cpu_state_dict", "flatten_state_dict", "set_element"]
