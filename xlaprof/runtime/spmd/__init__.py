"""SPMD: one process, several devices, one compilation, as PyTorch/XLA's ``torch_xla.distributed.spmd`` has it.

::

    import xlaprof.runtime as xr
    from xlaprof.runtime import spmd

    spmd.use_spmd()                                     # CPU_NUM_DEVICES=4 python train.py
    mesh = spmd.Mesh(range(4), (2, 2), ("data", "model"))
    model = Model().to("xla")
    spmd.mark_sharding(model.fc1.weight, mesh, ("model", None))
    x = spmd.mark_sharding(batch.to("xla"), mesh, ("data", None))

Tensors are global; XLA partitions the recorded operations according to the annotations.
"""

from . import executable as _executable  # registers itself with dynamo
from .annotate import (
    MarkShardingFunction,
    ShardingSpec,
    annotate_custom_sharding,
    clear_sharding,
    mark_sharding,
    mark_sharding_with_gradients,
    wrap_if_sharded,
)
from .debugging import visualize_sharding, visualize_tensor_sharding
from .dtensor import (
    auto_policy,
    convert_to_xla_mesh,
    convert_to_xla_partition_spec,
    xla_distribute_module,
    xla_distribute_tensor,
)
from .fsdp import SpmdFullyShardedDataParallel
from .linear import (
    EinsumLinear,
    XLAPatchedLinear,
    apply_backward_optimization_barrier,
    apply_xla_patch_to_nn_linear,
    xla_patched_nn_linear_forward,
)
from .manual import disable_manual_sharding, enable_manual_sharding, mark_manual_sharding
from .mesh import HybridMesh, Mesh, PartitionSpec, get_1d_mesh, get_global_mesh, set_global_mesh
from .mode import (
    addressable_runtime_device_count,
    disable_spmd,
    global_runtime_device_count,
    is_auto_spmd,
    is_spmd,
    use_spmd,
)
from .sharding import OpSharding, ShardingType
from .tensors.layout import get_sharding_spec, get_sharding_type, sharding_of, unwrap_sharded_tensor
from .tensors.sharded_tensor import XLAShardedTensor, wrap_as_sharded_tensor
from .tensors.shards import XLAShard
