"""``torch_xla.distributed.spmd.debugging``: shardings drawn as tables."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(
    __name__, dict.fromkeys(("visualize_sharding", "visualize_tensor_sharding"), "xlaprof.runtime.spmd")
)
