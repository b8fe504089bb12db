"""``torch_xla.version``: whose interface this is, and who serves it."""

from xlaprof import import_hook

__version__ = import_hook.version()
#: PyTorch/XLA's commits of itself and of XLA: there are none here
__xla_gitrev__ = __torch_xla_gitrev__ = ""
