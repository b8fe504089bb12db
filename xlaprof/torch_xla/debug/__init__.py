"""``torch_xla.debug``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(
    __name__,
    submodules=("graph_saver", "metrics", "metrics_compare_utils", "metrics_saver", "model_comparator", "profiler"),
)
