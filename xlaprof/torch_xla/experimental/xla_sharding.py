"""``torch_xla.experimental.xla_sharding``: what is in :mod:`torch_xla.distributed.spmd` now."""

from typing import Any


def __getattr__(name: str) -> Any:
    from xlaprof.torch_xla.distributed import spmd

    return getattr(spmd, name)
