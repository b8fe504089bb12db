"""``torch_xla.test``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(__name__, submodules=("test_utils",))
