"""``torch_xla.distributed.xla_backend``: importing it makes ``torch.distributed`` know the backend ``"xla"``."""

from xlaprof.runtime.distributed.backend import ProcessGroupXla

__all__ = ["ProcessGroupXla"]
