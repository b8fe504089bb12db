"""Tensors that grow from step to step: one of the largest size, and positions at which it is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Place
from xlaprof.analysis.places import named
from xlaprof.analysis.recompiles import along
from xlaprof.analysis.recompiles.group import Group, beside, sizes, sizes_by_program
from xlaprof.analysis.recompiles.wording import variable
from xlaprof.analysis.shapes import axes, dims, dtype, dtype_code
from xlaprof.analysis.statements import called, names, nodes
from xlaprof.events import Change
from xlaprof.vocabulary import fill

_JOINS = ("cat", "concat", "concatenate", "stack", "append")


class _Kept(NamedTuple):
    """What a slice keeps of what was joined."""

    most: str  # how many at most, as the program writes it
    place: Place  # of the slice
    is_joined: bool  # the tensor that the graphs have is what was joined, of which the slice is a view


class _Joined(NamedTuple):
    name: str  # it gets
    parts: tuple[str, ...]  # the names of what is joined, in order


class _Slice(NamedTuple):
    name: str  # it gets; "" where it is returned
    of: str  # the name of what is sliced; "" where the line joins it
    most: str
    last: bool  # [-most:] and not [:most]

    def may_keep(self, group: Group) -> bool:
        """Whether it leaves what was there at first."""
        return not self.most.isdecimal() or int(self.most) >= min(sizes(group))


class _Growth(NamedTuple):
    axis: int
    sizes: tuple[int, ...]  # ascending
    shape: tuple[int, ...]  # the first
    ended: bool  # most of its graphs' runs are the largest's
    kept: _Kept | None = None  # what a slice keeps of them

    @property
    def each(self) -> int:
        """How many come each time; 0: now more, now fewer."""
        steps = {after - before for before, after in pairwise(self.sizes)}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def most(self) -> int:
        return self.sizes[-1] if self.ended else self.sizes[-1] + self.sizes[-1] - self.sizes[-2]

    @property
    def rows(self) -> str:
        """How many there can be: a number, or the program's expression where the sizes do not show one."""
        if self.kept is None or self.kept.most.isdecimal():
            return self.kept.most if self.kept else str(self.most)
        if not self.ended or (self.kept.is_joined and not self.each):
            return self.kept.most
        return str(self.most - self.each * self.kept.is_joined)  # what was joined has the newest as well


def advise(facts: Facts, group: Group) -> tuple[str, str]:
    """What to do, and code."""
    one = _growth(facts, group)
    grown = f"Dimension {one.axis} grows from step to step"
    if one.kept is not None:
        rows, written = one.rows, one.kept.most
        at = f" ({named(one.kept.place)})" if one.kept.place.at != group.place.at else ""
        what = (
            f"{grown}, until the slice{at} keeps the newest {written} of it: allocate it once with "
            f"{rows if rows == written else f'{rows} ({written})'} rows, and write into it at positions that a tensor "
            f"holds, modulo {rows}. Until it is full, mask the rest. Where the order of the rows counts, begin with "
            f"all {rows} rows instead, of zeros that are masked, and leave the line that joins and the slice as they "
            "are."
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
    one = _Growth(axis, sizes, dims(group.first.old), 2 * ran[sizes[-1]] > sum(ran.values()))
    return one._replace(kept=_kept(facts, group, axis))


def _kept(facts: Facts, group: Group, axis: int) -> _Kept | None:
    """The slice that keeps the newest along a dimension: at the line that joins, or at another one.

    What it keeps is joined with the next ones: the names of both lines tell it from a slice that takes a look.
    """
    change, lines = group.first, _lines(facts, group)
    joins = [(place, one) for place in lines for one in _joins(place.acting.code)]
    again = change.subject.endswith("aten::slice")  # of a view the graphs have all that it is one of, and slice that
    for place in lines:
        for one in _slices(place.acting.code, axis):
            goes_on = any(_goes_on(one, joined, place.at == where.at) for where, joined in joins)
            at_once = place == group.place and not one.of and one.last
            if goes_on or at_once or (not one.name and again and one.may_keep(group)):
                return _Kept(one.most, place, again or place.at != group.place.at)
    return None


def _lines(facts: Facts, group: Group) -> list[Place]:
    """The lines of the group's first change, then all others of the same function that a graph differs at."""
    change = group.first
    parts = (part.change for record in facts.run.compiles for part in record.parts)
    seen = dict.fromkeys(stack for one in parts for stack in (one.stack, one.made))
    first = [group.place, facts.place(change.made), facts.place(change.stack)]
    here = (group.place.acting.file, group.place.acting.func)
    others = [place for place in map(facts.place, seen) if (place.acting.file, place.acting.func) == here]
    return list({place.at: place for place in (*first, *others)}.values())


def _goes_on(one: _Slice, joined: _Joined, same: bool) -> bool:
    """Whether a slice keeps the newest of what was joined, and is joined in its turn."""
    if not (same if not one.of else one.of == joined.name) or one.name not in joined.parts:
        return False
    return joined.parts[0 if one.last else -1] == one.name


def _name(node: ast.expr) -> str:
    """The last part of a name: one object has ``self.bank``, for another it is ``memory.bank``."""
    return next(names(node), "") if isinstance(node, ast.Name | ast.Attribute) else ""


def _bound(code: str) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they get; "" for what is returned."""
    for node in nodes(code, ast.stmt):
        if isinstance(node, ast.Assign):
            yield from ((_name(target), node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.Return) and node.value is not None:
            yield _name(node.target) if isinstance(node, ast.AnnAssign) else "", node.value


def _joins(code: str) -> Iterator[_Joined]:
    for name, value in _bound(code):
        for node in ast.walk(value):
            if called(node) in _JOINS and isinstance(node, ast.Call) and node.args:
                parts = node.args[0].elts if isinstance(node.args[0], ast.List | ast.Tuple) else node.args
                yield _Joined(name, tuple(map(_name, parts)))


def _slices(code: str, axis: int) -> Iterator[_Slice]:
    for name, value in _bound(code):
        node = value
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            node = node.func.value  # .detach(), .clone()
        if not isinstance(node, ast.Subscript):
            continue
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        joined = called(node.value) in _JOINS
        match parts[axis] if axis < len(parts) else None:
            case ast.Slice(lower=ast.UnaryOp(op=ast.USub(), operand=most), upper=None):
                yield _Slice(name, "" if joined else _name(node.value), ast.unparse(most), True)
            case ast.Slice(lower=None, upper=ast.expr() as most):
                yield _Slice(name, "" if joined else _name(node.value), ast.unparse(most), False)


def grown_too(facts: Facts, group: Group) -> dict[Place, list[Change]]:
    """Lines that make what else is longer by as much in the same graphs."""
    longer = _longer(group.first)
    return beside(facts, group, lambda one, _: one.what == "shape" and one.made > 0 and _longer(one) == longer)


def _longer(change: Change) -> list[int]:
    sizes = zip(dims(change.old), dims(change.new), strict=False)
    return [after - before for before, after in sizes if before != after]


def _code(facts: Facts, group: Group, one: _Growth) -> str:
    """Code that writes into a buffer; none where as many as fit do not come each time."""
    words, first = facts.words, 0 if one.kept is not None else one.sizes[0]
    if not one.each:
        return ""
    position = fill(words.scalar_code, value=first)
    if one.each > 1 and "index_copy" in words.write_code:  # a position for each
        position = f"{words.arrays}.arange({first}, {first + one.each}).to(device)"
    sizes = ", ".join(one.rows if i == one.axis else str(size) for i, size in enumerate(one.shape))
    zeros = fill(words.zeros_code, shape=sizes, dtype=dtype_code(words, dtype(group.first.old)))
    size, begins, moved, rest = "at the largest length", "", f"position + {one.each}", "what lies behind it is masked"
    if one.kept is not None:
        size, begins = "of all that is kept", "  # and behind the rows that it begins with, if it does"
        moved, rest = f"({moved}) % {one.rows}", "until it is full, what lies behind it is masked"
    return (
        f"buffer = {zeros}  # once, {size}\n"
        f"position = {position}{begins}\n"
        f"# in the loop, instead of {words.arrays}.cat:\n"
        f"buffer = {fill(words.write_code, axis=one.axis)}  # new: {one.each} more along dimension {one.axis}\n"
        f"position = {moved}  # {rest}"
    )
