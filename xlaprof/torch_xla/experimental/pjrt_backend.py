"""``torch_xla.experimental.pjrt_backend``: the older name of :mod:`torch_xla.distributed.xla_backend`."""

from xlaprof.torch_xla.distributed.xla_backend import ProcessGroupXla

__all__ = ["ProcessGroupXla"]
