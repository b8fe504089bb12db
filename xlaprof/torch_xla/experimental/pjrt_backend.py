"""``torch_xla.experimental.pjrt_backend``: what :mod:`torch_xla.distributed.xla_backend` was called first."""

from xlaprof.torch_xla.distributed.xla_backend import ProcessGroupXla

__all__ = ["ProcessGroupXla"]
