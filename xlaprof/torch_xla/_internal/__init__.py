"""``torch_xla._internal``: the few of PyTorch/XLA's own helpers that scripts use."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(__name__, submodules=("pjrt", "tpu", "utils"))
