"""``torch_xla.distributed.spmd``, customarily ``xs``: one process, values laid out over all devices."""

from xlaprof.torch_xla._served import names as _names
from xlaprof.torch_xla._served import served as _served

_SPMD = "xlaprof.runtime.spmd"
_HOMES = {
    **dict.fromkeys(
        (
            "EinsumLinear", "MarkShardingFunction", "Mesh", "PartitionSpec", "ShardingSpec",
            "ShardingType", "XLAPatchedLinear", "XLAShard", "XLAShardedTensor", "annotate_custom_sharding",
            "apply_backward_optimization_barrier", "apply_xla_patch_to_nn_linear", "auto_policy", "clear_sharding",
            "convert_to_xla_mesh", "convert_to_xla_partition_spec", "disable_manual_sharding",
            "enable_manual_sharding", "get_1d_mesh", "get_global_mesh", "mark_sharding",
            "mark_sharding_with_gradients", "set_global_mesh", "unwrap_sharded_tensor", "wrap_as_sharded_tensor",
            "wrap_if_sharded", "xla_distribute_module", "xla_distribute_tensor", "xla_patched_nn_linear_forward",
        ),
        _SPMD,
    ),
    "HybridMesh": "xlaprof.torch_xla.distributed.spmd.hybrid_mesh",
    "_mark_manual_sharding": f"{_SPMD}:mark_manual_sharding",
}  # fmt: skip

__getattr__ = _served(__name__, _HOMES, ("api", "debugging", "xla_sharded_tensor", "xla_sharding"))
__dir__ = _names(__name__, _HOMES)
__all__ = [  # served when they are named
    "HybridMesh",
    "Mesh",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "XLAShard",
    "XLAShardedTensor",
    "_mark_manual_sharding",
    "apply_backward_optimization_barrier",
    "auto_policy",
    "clear_sharding",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "mark_sharding",
    "set_global_mesh",
    "wrap_if_sharded",
    "xla_distribute_module",
    "xla_distribute_tensor",
    "xla_patched_nn_linear_forward",
]
