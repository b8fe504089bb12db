"""``torch_xla.core.dynamo_bridge``: ``torch.compile(backend="openxla")``."""

from xlaprof.torch_xla._served import served as _served

_HOMES = dict.fromkeys(
    (
        "GraphInputMatcher", "NoneRemover", "alias_with_buffer_donor_config", "extract_compiled_graph",
        "partition_fx_graph_for_cpu_fallback",
    ),
    "xlaprof.runtime.dynamo",
)  # fmt: skip

__getattr__ = _served(__name__, _HOMES)
