"""``torch_xla.core``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(
    __name__,
    submodules=(
        "dynamo_bridge", "functions", "xla_builder", "xla_env_vars", "xla_model", "xla_op_registry",
    ),
)  # fmt: skip
