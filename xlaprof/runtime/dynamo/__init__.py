"""``torch.compile`` over ``xla`` tensors, and its backend ``openxla``.

:mod:`.tracing` makes Dynamo know the device, for any backend. ``openxla`` lowers captured graphs by the runtime's
table. Nothing here imports ``torch._dynamo``: hooks run when the program does.
"""

from __future__ import annotations

from xlaprof.when_imported import when_imported

from . import backend, config, tracing
from .backend import openxla, openxla_eval
from .donation import alias_with_buffer_donor_config, get_buffer_donation, set_buffer_donation


def install() -> None:
    """Make Dynamo know the device and the backends, as soon as it is imported."""
    when_imported("torch._dynamo", tracing.install)
    when_imported("torch._dynamo.backends.torchxla", backend.install)
