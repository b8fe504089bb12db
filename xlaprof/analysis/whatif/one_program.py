"""What one program takes to compile that does what many do, by what the run's own programs took.

A program takes a base, however little it does: what the quicker lines' programs take, most of which run one operation.
In one of many operations each takes a part of that. What they take beyond it apart, they take together.
"""

from __future__ import annotations

from typing import NamedTuple

from xlaprof.analysis.fold.jit import Jit

#: operations of a large program that take as long as a program of one: in 60 recordings of plain jax, flax and equinox
#: on the CPU, idle and busy, it was 8 in the middle, and 5 to 13 in four fifths
_FOR_ONE = 8


class Compiling(NamedTuple):
    """Nanoseconds."""

    base: float  # a program

    def one(self, ops: float, took: float, programs: int, times: int = 1) -> float:
        """A program with ``ops`` operations in place of ``programs`` that ``took`` so long, compiled so many ``times``,
        as for several shapes; ``ops`` of all of these. What took longer than a base, as random numbers do, takes as
        long in it."""
        return times * self.base + max(ops * self.base / _FOR_ONE, took - programs * self.base)


def compiling(jit: Jit) -> Compiling:
    """Of a run that compiled operations outside of jitted functions."""
    means = sorted(one.dur / one.programs for one in jit.functions.values() if not one.name and one.programs)
    return Compiling(means[len(means) // 4] if means else 0.0)
