"""Profiling and graph diagnostics for compiled PyTorch.

::

    import xlaprof

    with xlaprof.record("run.log"):
        for i, batch in enumerate(loader):
            with xlaprof.StepTrace("train", step_num=i):
                with xlaprof.Trace("forward"):
                    loss = model(batch)

Names load when first used: importing the package is cheap and brings in neither torch nor jax.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing itself would cost more than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from .log import LogError, read
    from .recording.recorder import RecordingError, record, start_recording, stop_recording
    from .recording.trace import StepTrace, Trace
    from .version import __version__

_HOME = {
    "Trace": "recording.trace",
    "StepTrace": "recording.trace",
    "record": "recording.recorder",
    "start_recording": "recording.recorder",
    "stop_recording": "recording.recorder",
    "RecordingError": "recording.recorder",
    "read": "log",
    "LogError": "log",
    "__version__": "version",
}

__all__ = [
    "LogError",
    "RecordingError",
    "StepTrace",
    "Trace",
    "__version__",
    "read",
    "record",
    "start_recording",
    "stop_recording",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
