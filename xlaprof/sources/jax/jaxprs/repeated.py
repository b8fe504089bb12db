"""Which part of a program depends on some of its arguments alone: where these are the same arrays in each call, it is
computed again and again with the same result.

XLA cannot know that: a program computes all it has in each call. How long operations take is estimated from shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import log2, prod
from operator import or_
from typing import Any, NamedTuple

import msgspec

from xlaprof.recording.stacks import RawFrame

from .unrolled import lines

_MOST = 20_000  # operations looked at, those of a loop some three times: of a larger program nothing is said
_TURNS = 100  # of a loop that ends by a value, at most
_PARTS = 64  # told apart, by the arguments that they depend on

#: what takes as long as an operation of a matrix product: times rows, columns and the smaller of these.
#: Measured on a CPU with jax 0.10, as all figures below
_SOLVERS = {
    "cholesky": 1.0,
    "eig": 50.0,
    "eigh": 10.0,
    "geqrf": 4.0,
    "hessenberg": 8.0,
    "householder_product": 4.0,
    "lu": 2.0,
    "qr": 4.0,
    "schur": 30.0,
    "svd": 20.0,
    "tridiagonal": 4.0,
}
#: for each element of the result, or of what is read if that is more
_EACH = {
    "concatenate": 10.0,
    "cumlogsumexp": 600.0,
    "cummax": 300.0,
    "cumprod": 300.0,
    "cumsum": 300.0,
    "gather": 75.0,
    "random_bits": 400.0,
    "random_gamma": 2_000.0,
    "scatter": 150.0,
    "scatter-add": 150.0,
    "threefry2x32": 400.0,
    "transpose": 20.0,
}
_FREE = frozenset({"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "slice", "stop_gradient", "iota"})
_PLAIN = 8.0  # what is computed element by element, fused with what stands beside it
_SORTED, _TRANSFORMED = 500.0, 35.0  # for each element, times the logarithm of their number

#: of a part that may change with each call, whatever it is given: it reads or draws something itself
_CHANGES = 1 << 8_192


class Part(msgspec.Struct):
    """What depends on the same arguments."""

    depends: int  # bit n: on the nth argument
    operation: str = ""  # the dearest of it, and the shape of its result
    shape: tuple[int, ...] = ()
    frames: tuple[RawFrame, ...] = ()  # the lines of the program that asked for it, innermost first
    least: float = 0.0  # all of it, in operations of a matrix product; of a loop that ends by a value: of one turn
    most: float = 0.0  # the same, of many turns
    dearest: float = 0.0


class _Times(NamedTuple):
    """How often something runs in a call; never: it is only asked what depends on what."""

    least: float = 1
    most: float = 1

    def turns(self, least: int, most: int) -> _Times:
        return _Times(self.least * least, self.most * most)


_NEVER = _Times(0, 0)


class _Work:
    """What is counted, of one program."""

    def __init__(self) -> None:
        self.left = _MOST
        self.of: dict[int, Part] = {}

    def add(self, depends: int, times: _Times, equation: Any, around: Sequence[Any]) -> None:
        cost = _cost(equation)
        if depends not in self.of and len(self.of) >= _PARTS:
            depends = _CHANGES
        part = self.of.setdefault(depends, Part(depends))
        part.least += cost * times.least
        part.most += cost * times.most
        if cost * times.least > part.dearest:
            part.dearest = cost * times.least
            part.operation = equation.primitive.name
            part.shape = _shape(equation.outvars[0]) if equation.outvars else ()
            # what a library has traced before has no line of the program's, but the call of it has
            tracebacks = (one.source_info.traceback for one in (equation, *reversed(around)))
            part.frames = next((found for one in tracebacks if (found := lines(one))), ())


def parts(closed: Any) -> list[Part]:
    """The work of a closed jaxpr; none where it is too large.

    What depends on no argument is counted where XLA cannot compute it once for all: what LAPACK solves.
    """
    work, jaxpr = _Work(), closed.jaxpr
    _walk(jaxpr, [1 << at for at in range(len(jaxpr.invars))], work, _Times(), ())
    return list(work.of.values()) if work.left >= 0 else []


def repeated(found: Sequence[Part], same: int) -> tuple[float, Part | None]:
    """The share of the work that depends on the arguments ``same`` alone, by their bits, and the dearest of it."""
    again = [part for part in found if not part.depends & ~same]
    least = sum(part.least for part in again)
    rest = sum(part.most for part in found) - sum(part.most for part in again)
    return least / max(1.0, least + rest), max(again, key=lambda part: part.dearest, default=None)


def _walk(jaxpr: Any, given: Sequence[int], work: _Work, times: _Times, around: Sequence[Any]) -> list[int]:
    """On what each result depends, ``given`` on what each argument does. ``around``: the calls that it is in."""
    depends = dict(zip(jaxpr.invars, given, strict=True))

    def of(atom: Any) -> int:
        return 0 if hasattr(atom, "val") else depends.get(atom, 0)

    for equation in _wanted(jaxpr):
        work.left -= 1
        if work.left < 0:
            break
        ins = [of(atom) for atom in equation.invars]
        depends.update(zip(equation.outvars, _results(equation, ins, work, times, around), strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def _wanted(jaxpr: Any) -> list[Any]:
    """The equations that compute what is needed: XLA leaves out the others."""
    needed, wanted = {id(atom) for atom in jaxpr.outvars}, []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(one) in needed for one in equation.outvars):
            needed.update(map(id, equation.invars))
            wanted.append(equation)
    return wanted[::-1]


def _results(equation: Any, ins: list[int], work: _Work, times: _Times, around: Sequence[Any]) -> list[int]:
    name, params = equation.primitive.name, equation.params
    around = (*around, equation)
    if name == "scan":
        inner, consts, end = params["jaxpr"].jaxpr, params["num_consts"], params["num_consts"] + params["num_carry"]
        state = _settled(inner, ins, consts, end, work)
        length = max(1, params["length"])
        found = _walk(inner, [*ins[:consts], *state, *ins[end:]], work, times.turns(length, length), around)
        return [*state, *found[end - consts :]]
    if name == "while":
        body, test = params["body_jaxpr"].jaxpr, params["cond_jaxpr"].jaxpr
        tested, ins = ins[: params["cond_nconsts"]], ins[params["cond_nconsts"] :]
        consts = params["body_nconsts"]
        state = _settled(body, ins, consts, len(ins), work)
        (ends,) = _walk(test, [*tested, *state], work, times.turns(1, _TURNS), around)
        _walk(body, [*ins[:consts], *state], work, times.turns(1, _TURNS), around)
        return [one | ends for one in state]
    if name == "cond":
        branches = [_walk(one.jaxpr, ins[1:], work, times, around) for one in params["branches"]]
        return [reduce(or_, several, ins[0]) for several in zip(*branches, strict=True)]
    together = reduce(or_, ins, _CHANGES if equation.effects else 0)
    inners = [getattr(one, "jaxpr", one) for one in _within(params)]
    if len(inners) == 1 and len(inners[0].invars) == len(ins) and len(inners[0].outvars) == len(equation.outvars):
        return _walk(inners[0], ins, work, times, around)
    for inner in inners:
        _walk(inner, [together] * len(inner.invars), work, times, around)
    if times.most and not inners and (together or name in _SOLVERS):
        work.add(together, times, equation, around[:-1])
    return [together] * len(equation.outvars)


def _within(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(part, "jaxpr", part), "eqns"):
                yield part


def _settled(inner: Any, ins: list[int], begin: int, end: int, work: _Work) -> list[int]:
    """On what the values that a loop carries depend in all its turns: ``ins[begin:end]`` before the first."""
    state = ins[begin:end]
    while True:
        found = _walk(inner, [*ins[:begin], *state, *ins[end:]], work, _NEVER, ())
        now = [before | after for before, after in zip(state, found[: end - begin], strict=True)]
        if now == state:
            return state
        state = now


def _cost(equation: Any) -> float:
    """How long an operation takes, in operations of a matrix product."""
    name = equation.primitive.name
    result: int = prod(_shape(equation.outvars[0])) if equation.outvars else 0
    read: int = max((prod(_shape(atom)) for atom in equation.invars), default=0)
    if name in _FREE:
        return 0.0
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = _shape(equation.invars[0])
        return 2.0 * result * float(prod(shape[at] for at in contracted))
    if name == "conv_general_dilated":
        numbers, window = equation.params["dimension_numbers"], _shape(equation.invars[1])
        return 2.0 * result * float(prod(window)) / max(1, int(window[numbers.rhs_spec[0]]))
    if name in _SOLVERS:
        rows, columns = _shape(equation.invars[0])[-2:]
        return _SOLVERS[name] * read * int(min(rows, columns))
    if name == "triangular_solve":
        return float(result * _shape(equation.invars[0])[-1])
    if name in ("sort", "fft"):
        return (_SORTED if name == "sort" else _TRANSFORMED) * read * log2(max(2, read))
    return _EACH.get(name, _PLAIN) * max(result, read)


def _shape(atom: Any) -> tuple[int, ...]:
    """Symbolic sizes, which an exported program has, count as one."""
    return tuple(one if isinstance(one, int) else 1 for one in getattr(atom.aval, "shape", ()))
