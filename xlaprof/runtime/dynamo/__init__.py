"""``torch.compile`` over ``xla`` tensors, and its backend ``openxla``.

:mod:`.tracing` makes Dynamo know the device, for any backend. ``openxla`` lowers captured graphs by the runtime's
table. Nothing here imports ``torch._dynamo``: hooks run when the program does.
"""

from __future__ import annotations

import importlib
from typing import Any

from xlaprof.when_imported import when_imported

from . import backend, config, tracing
from .backend import openxla, openxla_eval
from .donation import alias_with_buffer_donor_config, get_buffer_donation, set_buffer_donation

#: parts of PyTorch/XLA's bridge, imported at first use
_LATE = {
    "GraphInputMatcher": "xlac",
    "NoneRemover": "xlac",
    "extract_compiled_graph": "bridge",
    "partition_fx_graph_for_cpu_fallback": "bridge",
    "dynamo_backend": "backend",
}

__all__ = [
    "alias_with_buffer_donor_config",
    "config",
    "extract_compiled_graph",
    "get_buffer_donation",
    "install",
    "openxla",
    "openxla_eval",
    "set_buffer_donation",
]


def __getattr__(name: str) -> Any:
    home = _LATE.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def install() -> None:
    """Make Dynamo know the device and the backends, as soon as it is imported."""
    when_imported("torch._dynamo", tracing.install)
    when_imported("torch._dynamo.backends.torchxla", backend.install)
