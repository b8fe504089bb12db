"""``torch_xla.experimental.eager``: every operation compiled alone and run at once."""

from xlaprof.torch_xla._served import served as _served
from xlaprof.torch_xla.torch_xla import compile

_HOMES = {"eager_mode": "xlaprof.runtime", "is_eager_mode": "xlaprof.runtime", "eager_mode_context": "xlaprof.runtime"}

__getattr__ = _served(__name__, _HOMES)
__all__ = ["compile"]
