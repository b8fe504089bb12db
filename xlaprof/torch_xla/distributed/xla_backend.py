"""``torch_xla.distributed.xla_backend``: importing it makes ``torch.distributed`` know the backend ``"xla"``."""

from xlaprof.runtime.distributed import backend as _backend
from xlaprof.torch_xla._served import served as _served

assert _backend
__getattr__ = _served(__name__, {"ProcessGroupXla": "xlaprof.runtime.distributed.backend"})
