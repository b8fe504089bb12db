"""``torch_xla.utils.closures``."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(__name__, {"AsyncClosureHandler": "xlaprof.runtime.modes.closures:Thread"})
