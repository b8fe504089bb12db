"""``torch_xla.experimental.spmd``: what :mod:`torch_xla.distributed.spmd` was called first."""

from typing import Any


def __getattr__(name: str) -> Any:
    from xlaprof.torch_xla.distributed import spmd

    return getattr(spmd, name)
