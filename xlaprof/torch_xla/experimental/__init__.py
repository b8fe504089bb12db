"""``torch_xla.experimental``."""

from xlaprof.torch_xla._served import served

__getattr__, __dir__ = served(__name__)
