"""Profiling and graph diagnostics for compiled PyTorch: why a program is slow, on which line, and what to change.

record, start_recording, stop_recording   write what the program does into a run.log
frozen                                    no compilation after warm-up: warns, raises or records, and says why
explain                                   what torch.compile or jax.jit makes of one function, over several calls
StepTrace, Trace                          name its steps and parts, for next to nothing where nothing records
report                                    the analysis of a run.log: findings with line, cost, cause and fix
read                                      the events of a run.log
LogError, RecordingError, RecompileError  what these raise, in one line with the way out

::

    import xlaprof

    with xlaprof.record("run.log"):
        for i, batch in enumerate(loader):
            with xlaprof.StepTrace("train", step_num=i):
                with xlaprof.Trace("forward"):
                    loss = model(batch)

    print(xlaprof.report("run.log"))

The runtime behind ``torch.device("xla")`` is ``xlaprof.runtime``; the command is ``xlaprof --help``.

Names load when first used: importing the package is cheap and brings in neither torch nor jax.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing itself would cost more than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from .explaining import explain
    from .log import LogError, read
    from .recording.frozen import RecompileError, frozen
    from .recording.recorder import RecordingError, record, start_recording, stop_recording
    from .recording.trace import StepTrace, Trace
    from .reports import report
    from .version import __version__

_HOME = {
    "Trace": "recording.trace",
    "StepTrace": "recording.trace",
    "record": "recording.recorder",
    "start_recording": "recording.recorder",
    "stop_recording": "recording.recorder",
    "RecordingError": "recording.recorder",
    "frozen": "recording.frozen",
    "RecompileError": "recording.frozen",
    "read": "log",
    "report": "reports",
    "explain": "explaining",
    "LogError": "log",
    "__version__": "version",
}

__all__ = [
    "LogError",
    "RecompileError",
    "RecordingError",
    "StepTrace",
    "Trace",
    "__version__",
    "explain",
    "frozen",
    "read",
    "record",
    "report",
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
    """The public names; parts of the package are modules to import by their names."""
    return __all__
