"""The packed numbers of eager operations: on the host, or on the device if they recur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape

#: uses of the same numbers before an upload (30 us) pays (it saves 3 us per use)
_OFTEN = 16
#: limit of different numbers that are remembered
_KEPT = 4096

#: (device, dtype, numbers) -> number of uses, then their array
_seen: dict[Any, Any] = {}


def of(tape: Tape, graph: Graph) -> tuple[Any, ...] | None:
    """The packed numbers that ``graph`` reads on this trace; ``None`` with a random key, which never recurs."""
    if graph.seeds:
        return None
    floats, ints = tape.floats, tape.ints
    return tuple([floats[p.index] for p in graph.floats] + [ints[p.index] for p in graph.ints])


def packed(tape: Tape, graph: Graph) -> tuple[list[Any], bool]:
    """Arguments of a bare program for its packed floats, ints and seeds (jax in 64-bit mode); are all on the device?"""
    found: list[Any] = []
    if graph.floats:
        floats = tape.floats
        found.append(_array(tape, np.float64, tuple([floats[p.index] for p in graph.floats])))
    if graph.ints:
        ints = tape.ints
        found.append(_array(tape, np.int64, tuple([ints[p.index] for p in graph.ints])))
    if graph.seeds:
        found.append(np.array([tape.seeds[row] for row in graph.seeds], np.uint32))
    return found, not any(isinstance(array, np.ndarray) for array in found)


def _array(tape: Tape, dtype: Any, numbers: tuple[Any, ...]) -> Any:
    """``numbers`` on the host, or on the device if they recur."""
    key = (tape.index, dtype, numbers)
    seen = _seen.get(key, 0)
    if type(seen) is not int:
        return seen
    if not seen and len(_seen) >= _KEPT:
        _seen.clear()
    array = np.array(numbers, dtype)
    _seen[key] = jax.device_put(array, tape.device) if seen == _OFTEN else seen + 1
    return array
