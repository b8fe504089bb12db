"""``torch_xla.debug.profiler``, customarily ``xp``: scopes, steps, traces for TensorBoard."""

from xlaprof.torch_xla._served import names as _names
from xlaprof.torch_xla._served import served as _served

_PROFILER = "xlaprof.runtime.profiler"
_HOMES = dict.fromkeys(
    (
        "StepTrace", "Trace", "get_tracer_marked_step", "set_tracer_marked_step", "start_server", "start_trace",
        "stop_trace", "trace", "trace_detached", "trace_me",
    ),
    _PROFILER,
)  # fmt: skip

__getattr__ = _served(__name__, _HOMES)
__dir__ = _names(__name__, _HOMES)
