"""Tensors that grow from step to step: one of the largest size, and positions at which it is written."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Place
from xlaprof.analysis.places import named
from xlaprof.analysis.recompiles import along
from xlaprof.analysis.recompiles.group import Group, beside, sizes_by_program
from xlaprof.analysis.recompiles.wording import variable
from xlaprof.analysis.shapes import axes, dims, dtype, dtype_code
from xlaprof.analysis.statements import called, nodes
from xlaprof.events import Change
from xlaprof.vocabulary import fill

_JOINS = ("cat", "concat", "concatenate", "stack", "append")


class _Growth(NamedTuple):
    axis: int
    sizes: tuple[int, ...]  # ascending
    shape: tuple[int, ...]  # the first
    ended: bool  # most of its graphs' runs are the largest's
    kept: str  # the expression for how many a slice keeps of them: "" where none does

    @property
    def each(self) -> int:
        """How many come each time; 0: now more, now fewer."""
        steps = {after - before for before, after in pairwise(self.sizes)}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def most(self) -> int:
        return self.sizes[-1] if self.ended else self.sizes[-1] + self.sizes[-1] - self.sizes[-2]


def advise(facts: Facts, group: Group) -> tuple[str, str]:
    """What to do, and code."""
    one = _growth(facts, group)
    grown = f"Dimension {one.axis} grows from step to step"
    if one.kept:
        what = (
            f"{grown}, until the slice keeps the last {one.kept} of it: allocate it once with {one.kept} rows, and "
            f"write into it at positions that a tensor holds, modulo {one.kept}. Until it is full, mask the rest."
        )
    else:
        so_far = "" if one.ended else " at least, so far"
        what = (
            f"{grown}: allocate it once at its largest size ({one.most}{so_far}) and write into it at a position held "
            "in a tensor."
        )
    others = [
        f"{variable(changes[0], place, facts.place(changes[0].stack)) or 'a tensor'} ({named(place)})"
        for place, changes in grown_too(facts, group).items()
    ]
    if others:
        which = " and ".join(others)
        what += f" The same graphs have {which}, which grows with it: do the same there, or there are as many graphs."
    return " ".join((what, *along.needs(facts, group))), _code(facts, group, one)


def _growth(facts: Facts, group: Group) -> _Growth:
    axis = next(iter(axes(group.first)))
    ran: dict[int, int] = {}
    for program, size in sizes_by_program(group, axis):
        ran[size] = ran.get(size, 0) + facts.run.program_runs.get(program, 0)
    sizes = tuple(sorted(ran))
    kept = _kept(group.place.acting.code)
    return _Growth(axis, sizes, dims(group.first.old), 2 * ran[sizes[-1]] > sum(ran.values()), kept)


def _kept(code: str) -> str:
    """N of a line that joins tensors and keeps the last N, as with ``torch.cat([queue, keys])[-N:]``."""
    for node in nodes(code, ast.Subscript):
        match node.slice:
            case ast.Slice(lower=ast.UnaryOp(op=ast.USub(), operand=last), upper=None) if called(node.value) in _JOINS:
                return ast.unparse(last)
    return ""


def grown_too(facts: Facts, group: Group) -> dict[Place, list[Change]]:
    """Lines that make what else is longer by as much in the same graphs."""
    longer = _longer(group.first)
    return beside(facts, group, lambda one, _: one.what == "shape" and one.made > 0 and _longer(one) == longer)


def _longer(change: Change) -> list[int]:
    sizes = zip(dims(change.old), dims(change.new), strict=False)
    return [after - before for before, after in sizes if before != after]


def _code(facts: Facts, group: Group, one: _Growth) -> str:
    """Code that writes into a buffer; none where as many as fit do not come each time."""
    words, first = facts.words, one.sizes[0]
    if not one.each:
        return ""
    position = fill(words.scalar_code, value=first)
    if one.each > 1 and "index_copy" in words.write_code:  # a position for each
        position = f"{words.arrays}.arange({first}, {first + one.each}).to(device)"
    rows = one.kept or str(one.most)
    sizes = ", ".join(rows if i == one.axis else str(size) for i, size in enumerate(one.shape))
    kind = dtype_code(words, dtype(group.first.old))
    moved = f"(position + {one.each}) % {one.kept}" if one.kept else f"position + {one.each}"
    return (
        f"buffer = {fill(words.zeros_code, shape=sizes, dtype=kind)}  # once, at the largest length\n"
        f"position = {position}\n"
        f"# in the loop, instead of {words.arrays}.cat:\n"
        f"buffer = {fill(words.write_code, axis=one.axis)}  # new: {one.each} more along dimension {one.axis}\n"
        f"position = {moved}  # what lies behind it is masked"
    )
