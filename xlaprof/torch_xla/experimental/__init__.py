"""``torch_xla.experimental``."""

from xlaprof.torch_xla._served import served as _served

_HOMES = {
    "eager_mode": "xlaprof.torch_xla.experimental.eager",
    "eager_mode_context": "xlaprof.torch_xla.experimental.eager",
    "is_eager_mode": "xlaprof.torch_xla.experimental.eager",
    "compile": "xlaprof.torch_xla.torch_xla",
}

__getattr__ = _served(
    __name__,
    _HOMES,
    (
        "assume_pure",
        "callback",
        "custom_kernel",
        "distributed_checkpoint",
        "dynamo_set_buffer_donor",
        "eager",
        "fori_loop",
        "gradient_accumulation",
        "pjrt",
        "pjrt_backend",
        "scan",
        "scan_layers",
        "spmd",
        "spmd_fully_sharded_data_parallel",
        "xla_sharding",
        "xla_sharded_tensor",
    ),
)
