"""The parts of a step's time, called as the causes of device idle time are, in the order of a step."""

from __future__ import annotations

_WORTH_A_ROW = 0.0005  # of the whole

#: (name, field of ``xlaprof.analysis.model.TimeSplit``)
PARTS = (
    ("data wait", "data_wait_s"),
    ("tracing", "tracing_s"),
    ("compile", "compile_s"),
    ("upload", "upload_s"),
    ("dispatch", "execute_s"),
    ("transfer wait", "transfer_wait_s"),
    ("fallback", "fallback_s"),
    ("garbage collection", "gc_s"),
    ("named scopes", "scopes_s"),
    ("other", "other_s"),
)


def parts(split: object) -> list[tuple[str, float]]:
    """(name, seconds) of each part of a TimeSplit that took time, in the order of a step."""
    return [(name, getattr(split, field)) for name, field in PARTS if getattr(split, field) > 0]


def mean_parts(split: object, steps: int) -> list[tuple[str, float]]:
    """(name, seconds) of the parts of one step on average, the largest first, without what rounds to nothing."""
    least = _WORTH_A_ROW * sum(seconds for _, seconds in parts(split))
    rows = [(name, seconds / max(1, steps)) for name, seconds in parts(split) if seconds > least]
    return sorted(rows, key=lambda row: -row[1])
