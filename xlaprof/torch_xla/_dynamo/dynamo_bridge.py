"""``torch_xla._dynamo.dynamo_bridge``."""

from xlaprof.torch_xla._served import served as _served
from xlaprof.torch_xla.core.dynamo_bridge import _HOMES

__getattr__ = _served(__name__, _HOMES)
