"""``torch_xla.experimental.pjrt``: what :mod:`torch_xla.runtime` and its internals were called first."""

from typing import Any


def __getattr__(name: str) -> Any:
    from xlaprof.torch_xla import runtime
    from xlaprof.torch_xla._internal import pjrt

    return getattr(pjrt if name in pjrt.__all__ else runtime, name)
