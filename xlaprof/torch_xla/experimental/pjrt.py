"""``torch_xla.experimental.pjrt``: what :mod:`torch_xla.runtime` was called first."""

from typing import Any


def __getattr__(name: str) -> Any:
    from xlaprof.torch_xla import runtime

    return getattr(runtime, name)
