"""What was alive on the device, and what programs of JAX need while they run."""

from __future__ import annotations

from typing import Any

from xlaprof.analysis.model import MemoryReading, Report
from xlaprof.text.quantities import duration, plural, size_text

from .index import Index


def memory(report: Report, index: Index) -> dict[str, Any]:
    """The readings of the run; the programs that need most come first."""
    stat = report.memory
    programs = [(function.name, one) for function in report.jax.functions for one in function.programs]
    programs.sort(key=lambda one: -one[1].needs_bytes)
    return {
        "note": f"alive on the device, {plural(stat.readings, 'reading')} at barriers" if stat.readings else "",
        "last": _reading(stat.last) if stat.last is not None else None,
        "most": _reading(stat.most) if stat.most is not None else None,
        "course": [_reading(one) for one in stat.course],
        "held": [[plural(one.tensors, "tensor"), size_text(one.bytes), index.place(one.place)] for one in stat.held],
        "kept": {
            "text": f"The {stat.kept.kind} {stat.kept.path} keeps ever more of them: "
            f"{plural(stat.kept.length, 'element')} when it was looked at.",
            "places": [index.place(one) for one in stat.kept.places],
        }
        if stat.kept is not None
        else None,
        "programs": [
            {
                "name": name,
                "place": index.place(one.place),
                "needs": size_text(one.needs_bytes),
                "bytes": one.needs_bytes,
                **{part: size_text(getattr(one, part)) for part in ("arguments", "results", "temporary", "donated")},
                "devices": f"{one.devices:,}",
                "runs": f"{one.runs:,}",
            }
            for name, one in programs
        ],
    }


def _reading(one: MemoryReading) -> dict[str, Any]:
    return {
        "at_s": one.at_s,
        "at": duration(one.at_s),
        "tensors": f"{one.tensors:,}",
        "bytes": one.bytes,
        "size": size_text(one.bytes),
        "programs": f"{one.programs:,}",
    }
