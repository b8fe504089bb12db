"""``torch_xla._internal``: the few of PyTorch/XLA's own helpers that scripts use."""

from xlaprof.torch_xla._served import served

__getattr__, __dir__ = served(__name__)
