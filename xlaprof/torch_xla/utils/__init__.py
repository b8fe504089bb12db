"""``torch_xla.utils``."""

from xlaprof.torch_xla._served import served

__getattr__, __dir__ = served(__name__)
