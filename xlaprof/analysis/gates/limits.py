"""The limits to which a run can be held: one table for the command line, pyproject.toml and pytest's marker.

docs/ci.md describes what each counts; :mod:`xlaprof.analysis.gates.budget` does it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from xlaprof.analysis.model import SEVERITIES
from xlaprof.errors import UserError
from xlaprof.text.strings import did_you_mean


class BudgetError(UserError):
    """A budget that cannot be understood, or that a run cannot be held to. One line, with the way out."""


class Budget(msgspec.Struct, frozen=True):
    """Limits, each None (or empty) where it does not matter. Lengths in seconds."""

    max_recompiles: int | None = None
    max_compiles: int | None = None
    max_compile_time: float | None = None
    max_transfers_per_step: float | None = None
    max_graph_breaks: int | None = None
    max_idle: float | None = None  # share of the window, 0..1
    max_step_time: float | None = None
    max_memory: float | None = None  # bytes
    no_fallback: bool = False
    no_findings: str = ""  # the least severity that counts
    after_step: int | None = None
    ignore: tuple[str, ...] = ()  # kinds and ids of findings that no_findings lets pass
    allow_dropped: bool = False

    @property
    def empty(self) -> bool:
        """Nothing is limited."""
        return not any(limit.limits for limit in LIMITS if self.given(limit.name))

    def given(self, name: str) -> bool:
        """Whether this limit is set; 0 counts as set."""
        value = getattr(self, name)
        return value is not None and value is not False and value not in ("", ())

    def over(self, other: Budget) -> Budget:
        """This budget, with ``other``'s limits where it sets none."""
        mine = {name: getattr(self, name) for name in self.__struct_fields__ if self.given(name)}
        return msgspec.structs.replace(other, **mine)


class Limit(NamedTuple):
    """One line of the table. ``sort``: the type of its value, a key of :data:`SORTS`."""

    name: str
    sort: str
    metavar: str
    help: str
    limits: bool = True  # False: it qualifies the others


LIMITS = (
    Limit("max_recompiles", "count", "N", "recompilations after warm-up"),
    Limit("max_compiles", "count", "N", "compilations, the first ones included"),
    Limit("max_compile_time", "seconds", "TIME", "total time of compiling: 20s, 1.5min"),
    Limit("max_transfers_per_step", "rate", "X", "values read from the device per step: 0, 0.1"),
    Limit("max_graph_breaks", "count", "N", "graph breaks of compiled functions"),
    Limit("max_idle", "share", "SHARE", "share of the time without device work: 10%%"),
    Limit("max_step_time", "seconds", "TIME", "median step time: 50ms"),
    Limit("max_memory", "bytes", "BYTES", "most memory in use on the device: 512MiB, 16GB"),
    Limit("no_fallback", "flag", "", "no operation runs on the CPU because it has no lowering"),
    Limit("no_findings", "severity", "SEVERITY", "no finding of this severity (low, medium, high) or worse"),
    Limit("after_step", "count", "N", "everything up to the end of step N is warm-up and does not count", False),
    Limit("ignore", "names", "WHAT", "a kind or id of findings that --no-findings lets pass; may be repeated", False),
    Limit("allow_dropped", "flag", "", "let a recording that lacks events pass by those that it has", False),
)  # fmt: skip

_NAMES = tuple(limit.name for limit in LIMITS)
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?"
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_SIZES = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_SIZES |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def budget(values: Mapping[str, object], where: str = "") -> Budget:
    """The budget in ``values``, whose names may have dashes or underscores.

    ``where`` names the place they come from. Raises :class:`BudgetError` for an unknown name, with the nearest known
    one, and for a value of the wrong type.
    """
    prefix = f"{where}: " if where else ""
    read: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        limit = next((limit for limit in LIMITS if limit.name == name), None)
        if limit is None:
            hint = did_you_mean(name, _NAMES) or f"there are {', '.join(_NAMES)}"
            raise BudgetError(f"{prefix}unknown budget '{key}': {hint}")
        if name in read:
            raise BudgetError(f"{prefix}{name} is there twice: leave one out")
        parse, should = SORTS[limit.sort]
        try:
            read[name] = parse(value)
        except (ValueError, TypeError):
            raise BudgetError(f"{prefix}{name} is {value!r}, but should be {should}") from None
    return Budget(**read)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def _rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError
    return number


def share(value: object) -> float:
    """A share of a whole, 0..1, from "10%", "0.1" or 0.1. Raises ValueError."""
    percent = isinstance(value, str) and value.strip().endswith("%")
    number = _rate(str(value).strip()[:-1]) / 100 if percent else _rate(value)
    if number > 1:
        raise ValueError
    return number


def _with_unit(value: object, units: Mapping[str, float]) -> float:
    if not isinstance(value, str):
        return _rate(value)
    found = re.fullmatch(rf"\s*({_NUMBER})\s*([a-zµ]*)\s*", value.lower())
    if found is None or found[3] not in units:
        raise ValueError
    return _rate(found[1]) * units[found[3]]


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _severity(value: object) -> str:
    if isinstance(value, bool):
        return SEVERITIES[-1] if value else ""
    if value not in SEVERITIES:
        raise ValueError
    return str(value)


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError
    return tuple(value)


#: type of a limit's value -> how it is parsed, and its description
SORTS: dict[str, tuple[Callable[[object], object], str]] = {
    "count": (_count, "a number of 0 or more"),
    "rate": (_rate, "a number of 0 or more"),
    "share": (share, "a share like 10% or 0.1"),
    "seconds": (
        partial(_with_unit, units=_TIMES),
        "a length like 50ms, 2s or 1.5min (a number without a unit in a file or marker: seconds)",
    ),
    "bytes": (partial(_with_unit, units=_SIZES), "a size like 512MiB, 16GB or a number of bytes"),
    "flag": (_flag, "true or false"),
    "severity": (_severity, "true, false, low, medium or high"),
    "names": (_names, "a list of kinds and ids of findings"),
}
