"""``torch_xla.distributed``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(
    __name__,
    submodules=(
        "data_parallel",
        "fsdp",
        "parallel_loader",
        "spmd",
        "xla_backend",
        "xla_multiprocessing",
        "zero_redundancy_optimizer",
    ),
)
