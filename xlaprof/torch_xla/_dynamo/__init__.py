"""``torch_xla._dynamo``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(__name__, submodules=("config", "dynamo_backend2", "dynamo_bridge"))
