"""``torch_xla.utils``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(
    __name__,
    submodules=(
        "cached_dataset",
        "checkpoint",
        "closures",
        "dlpack",
        "gcsfs",
        "keyd_queue",
        "rate",
        "serialization",
        "utils",
    ),
)
