"""Why a graph was compiled again: the one recorded difference from which the others follow, and its meaning.

The runtime records facts (:class:`~xlaprof.events.GraphDiff`). This module concludes a
:class:`~xlaprof.events.Change` from them, with its role: a moved barrier, a learning rate, a loop... Logs
of earlier versions hold the change itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from xlaprof.analysis.principles import MOST
from xlaprof.events import Block, Change, Compile, Difference, GraphDiff, Loop, Operation

#: subject of a change where one of several values that were computed alike is used, and now another
USED = "what is used"
#: of a tensor: it is one with another input of the graph
SAME = "the same tensor as elsewhere"
_INPUTS = frozenset({"shape", "dtype", "sharding"})
#: differences that follow from another path, where operations came or went
_FOLLOWS = _INPUTS | {"inputs", "aliasing"}
_GRADIENTS = frozenset({"zero_grad", "grad"})
_NUMBERS = frozenset({"scalar", "argument", "size"})
#: arguments of views, as the runtime's own write through one has them, after the tensor and the value
_VIEWS = {"slice": ("dim", "start", "end", "step"), "select": ("dim", "index")}
_SLICE = "aten::slice"
_WRITES = " of xlaprof.scatter:aten."

Hyperparameters = list[tuple[str, float]]


Key = tuple[str, int, str]  # sort of the change, Stack id, name
Value = tuple[str, int]  # text, Stack id


class Part(NamedTuple):
    """One thing that differs by itself: which it is, and its values before and now."""

    change: Change
    key: Key
    old: Value
    new: Value
    size: int = 0  # operations that came, or went, in one piece
    before: tuple[int, ...] = ()  # Stack ids of the first of those that went, and
    now: tuple[int, ...] = ()  # of those that came


def parts(event: Compile) -> tuple[Part, ...]:
    """The independent differences of a graph, the one that :func:`cause` names first."""
    change, diff = cause(event), event.diff
    if change is None:
        return ()
    first = _first(diff) if diff is not None and event.change is None else None
    if diff is None or diff.captured or first is None:
        return (_part(change, event.program),)
    others = (one for one in _on_their_own(diff) if one is not first)
    return tuple(_part(_change(event, diff, one), event.program, one) for one in (first, *others))


def _on_their_own(diff: GraphDiff) -> Iterator[Difference]:
    """Differences of the forward pass, which training follows; without those that follow from another path.

    A write through a view has the numbers of the view, which the program called.
    """
    path = bool(diff.added or diff.removed)
    slices = _slices_by_size(diff)
    if path:
        yield from _of_one_line(diff)
    shapes = any(one.kind in _INPUTS for one in (*diff.inputs, *diff.differences))
    called = any(one.kind in _NUMBERS and not _is_own(one) for one in diff.differences)
    for one in diff.differences:
        if called and one.kind in _NUMBERS and _is_own(one):
            continue
        if one.block is not None:
            path_taken = "" in one.block.roles and not one.block.barrier and not slices
            if path_taken or set(one.block.roles) == {"state"}:
                yield one
        elif _part_of_training(one.came) or (path and one.kind in _FOLLOWS):
            continue
        elif one.kind in _INPUTS or one.kind == "size" or not shapes:  # other numbers follow from a tensor's shape
            yield one


def _is_own(one: Difference) -> bool:
    """Whether it is an argument of an operation that the runtime recorded, and the program did not call."""
    return one.came is not None and one.came.own


def along(event: Compile) -> tuple[Change, ...]:
    """What goes with a size that differs: arguments of the forward pass, and operations that work along its dimension.

    An argument may follow from the tensor's shape, or be the number that the shape follows from.
    """
    diff = event.diff
    if diff is None or not any(one.kind == "shape" for one in (*diff.inputs, *diff.differences)):
        return ()
    numbers = (one for one in diff.differences if one.kind == "argument" and not _part_of_training(one.came))
    operations = (Change("along", "", "", one.name, one.stack) for one in diff.along)
    return (*(_plain(diff, one) for one in numbers), *operations)


def _part(change: Change, program: int, one: Difference | None = None) -> Part:
    block = one.block if one is not None and change.role in ("", "state") else None
    if change.role == "loop" and change.condition:  # one choice for each pass: what differs is some other sequence
        return Part(change, (change.what, change.condition, ""), (str(change.against), 0), (str(program), 0))
    if block is None:
        kind = change.old.partition("[")[0] if change.what == "shape" else ""  # rows and labels have one reader
        place, name = change.condition or change.made or change.stack, change.name or f"{kind} {change.subject}"
        return Part(change, (change.what, place, name), (change.old, 0), (change.new, 0))
    if change.role == "state":  # of the optimizer, wherever its operations stand
        old, new = _states(change, block)
        return Part(change, (change.what, 0, "state"), old, new)
    old, new = ((side[0].name, side[0].stack) if side else ("", 0) for side in (block.old, block.new))
    before, now = (tuple(dict.fromkeys(one.stack for one in side)) for side in (block.old, block.new))
    size = max(block.added, block.removed)
    return Part(change, (change.what, block.condition or block.stack, ""), old, new, size, before, now)


def _states(change: Change, block: Block) -> tuple[Value, Value]:
    """What the optimizer does with its state before and now: "made", "kept", or "" where it takes no step.

    Where no operation tells (a first momentum is a copy of the gradient), the first step does less than the others.
    """
    told = "state" in block.roles
    first = any(one.role == "state" for one in block.old) or (not told and change.removed <= change.added)
    old, new = ("made", "kept") if first else ("kept", "made")
    whole = told and set(block.roles) != {"state"}  # steps came or went, not only their state
    return ("" if whole and not block.old else old, 0), ("" if whole and not block.new else new, 0)


def cause(event: Compile) -> Change | None:
    """The change that made the graph a new one; ``None``: nothing comparable had been compiled before."""
    diff = event.diff
    if event.change is not None or diff is None:
        return event.change
    first = _first(diff)
    if diff.captured:  # torch.compile has one graph for all sizes and numbers; a program of XLA's is compiled for each
        if first is None:
            return None
        subject = first.subject if first.kind in _INPUTS else "a number that the compiled function is given"
        fields = {"name": first.name, "made": first.made, "moved": first.moved, "role": "dynamic"}
        return _plain(diff, first, subject=subject, expected=_place(first.came), **fields)
    if first is None:
        # in eager mode another operation is the program's next line
        eager = event.trigger == "eager" and diff.left is not None and diff.left.kind == "operation"
        return _plain(diff, diff.left) if diff.left is not None and not eager else None
    return _change(event, diff, first)


def _first(diff: GraphDiff) -> Difference | None:
    """The difference from which the others follow: one of an input if there is any, else the first recorded.

    A tensor of another shape can cause another path through the program, and other arguments.
    """
    found, path = diff.differences, bool(diff.added or diff.removed)
    # where operations of the forward pass came or went, later inputs differ by chance, unless one line made both
    forward = "" in diff.roles and not _slices_by_size(diff)
    common = [d for d in takewhile(lambda d: d.block is None, found) if not d.name and not _part_of_training(d.came)]
    inputs = [d for d in (common if path else found) if d.kind in _INPUTS]
    inputs += [d for d in _of_one_line(diff) if path]
    if path and not forward:
        inputs += [d for d in found if d.kind == "shape" and not _part_of_training(d.came) and d not in inputs]
    modules = [d for d in found if _is_of_another_module(d)]
    inputs = [d for d in inputs if d not in modules] or modules
    if inputs:
        return inputs[0]
    sizes = [d for d in found if d.kind == "size"]
    state = [d for d in found if d.block is not None and "state" in d.block.roles]
    # where operations came or went, the numbering of values follows from them
    firm = [d for d in found if not path or d.kind not in _FOLLOWS]
    # the set of gradients, the operations on them, and numbers that training records follow from the path as well
    primary = [d for d in firm if not path or (not _roles(d) <= _GRADIENTS if d.block is not None else "" in _roles(d))]
    came = [d for d in firm if d.block is not None]
    return next(iter(sizes or state or primary or came or firm), None)


def _of_one_line(diff: GraphDiff) -> Iterator[Difference]:
    """Inputs that one line made, before and now.

    Parameters and their gradients are left out: the path decides which of them is used.
    """
    parameters = set()
    for one in diff.inputs:
        if one.name:
            parameters.add(one.made)
        elif one.made not in parameters:
            yield one


def _slices_by_size(diff: GraphDiff) -> bool:
    """Whether all that came or went are slices, beside an input of another size that the same operation takes.

    A slice as long as the tensor itself is no operation (``table[:, :n]``, where a batch is as long as the table): it
    comes and goes with the size. The backward pass follows.
    """
    blocks = [one.block for one in diff.differences if one.block is not None]
    forward = [block for block in blocks if "" in block.roles]
    sliced = (one.name == _SLICE for block in forward for one in (*block.old, *block.new) if not one.role)
    whole = all(len(one.old) == one.removed and len(one.new) == one.added for one in forward)
    told = sum(one.removed + one.added for one in blocks) == diff.removed + diff.added
    taken = (
        one.expected is not None and one.came is not None and one.expected.stack == one.came.stack
        for one in diff.differences
        if one.kind == "shape" and not one.name and not _part_of_training(one.came)
    )
    return bool(forward) and whole and told and all(sliced) and any(taken)


def _is_of_another_module(one: Difference) -> bool:
    """A parameter of another shape in the forward pass: parameters keep theirs, so it is another one."""
    return one.kind == "shape" and bool(one.name) and one.came is not None and not one.came.role


def _roles(one: Difference) -> set[str]:
    """Parts of training that recorded what differs."""
    if one.block is not None:
        return set(one.block.roles)
    return {_part_of_training(one.came)}


def _change(event: Compile, diff: GraphDiff, first: Difference) -> Change:
    if first.kind == "outputs":  # the operations are the same; the tensors that live on are not
        made = _place(first.came)
        return _plain(diff, first, stack=first.kept or made, name=first.name, made=made, role=first.holder)
    if first.kind in _INPUTS:
        # another parameter: the line that uses it chose it, not the line that made it
        made = 0 if first.kind == "shape" and first.name else first.made
        moved = bool(made) and first.moved
        return _plain(diff, first, code_seen=True, name=first.name, made=made, moved=moved)
    if first.block is not None:
        # a barrier only divides: what came beside it makes another graph with or without it; a read mostly runs part
        if event.trigger != "read" and first.block.barrier and not (diff.added and diff.removed):
            return _barrier(event, diff, first.block)
        if diff.loop is not None and diff.loop.agreeing >= MOST * diff.loop.differing:
            return _loop(diff, diff.loop, first)
        return _path(event, diff, first, first.block)
    if first.kind in ("inputs", "aliasing"):  # a value computed in the graph is now an input, or the other way round
        texts = {"old": SAME, "new": "another tensor"} if first.kind == "aliasing" else {}
        role = _part_of_training(first.came)
        return _plain(diff, first, code_seen=True, name=first.name, made=first.made, role=role, **texts)
    if first.loop is not None and 1 < first.loop.distinct == max(first.loop.old, first.loop.new):
        return _loop(diff, first.loop)  # the number tells the iterations apart, of which a condition selected others
    if first.read:  # both graphs compute several values; a value read in between decided which of them is used
        argument, _, operation = _subject(first).partition(" of ")
        old, new = (f"{operation} ({argument} {value})" for value in (first.old, first.new))
        fields = {"subject": USED, "stack": first.read, "expected": _place(first.came), "code_seen": True}
        return _plain(diff, first, what="operation", old=old, new=new, **fields)
    return _number(diff, first)


def _plain(diff: GraphDiff, one: Difference, **fields: object) -> Change:
    """The difference as it was recorded."""
    known: dict[str, object] = {
        "what": one.kind,
        "old": one.old,
        "new": one.new,
        "subject": _subject(one),
        "stack": _place(one.came),
        "expected": _place(one.expected),
        "code_seen": one.seen,
        "position": diff.common,
        "added": diff.added,
        "removed": diff.removed,
        "against": diff.against,
        "element": one.came is not None and one.came.element,
    }
    return Change(**{**known, **fields})  # type: ignore[arg-type]


def _subject(one: Difference) -> str:
    """What differs, named; of a write through a view as the view's own argument."""
    argument, written, view = one.subject.partition(_WRITES)
    name = view.partition(".")[0]
    names = dict(enumerate(_VIEWS.get(name, ()), 2))
    if written and argument.isdecimal() and (known := names.get(int(argument))):
        return f"{known} of aten::{name}"
    return one.subject


def _place(operation: Operation | None) -> int:
    """Stack id of the line that recorded it."""
    return operation.stack if operation is not None else 0


def _part_of_training(operation: Operation | None) -> str:
    """The part of training that recorded it."""
    return operation.role if operation is not None else ""


# -- operations


def _barrier(event: Compile, diff: GraphDiff, block: Block) -> Change:
    """Operations came or went because another barrier runs them, or did before."""
    return Change(
        "operation", "one barrier at the end of the step", "another barrier before it", "the barriers", block.barrier,
        event.stack, diff.common, role="barrier", condition=block.barrier_condition,
        made=_place(next(iter(block.new or block.old), None)),
        added=diff.added, removed=diff.removed, against=diff.against,
    )  # fmt: skip


def _loop(diff: GraphDiff, loop: Loop, one: Difference | None = None) -> Change:
    """More or fewer iterations of a loop, or other ones; or as many, where a condition chose ``one`` in one of them."""
    old, new = (f"{times} pass" + "es" * (times > 1) for times in (loop.old, loop.new))
    if old == new:
        old, new = (one.old, one.new) if one is not None else (old, "other passes")
    return Change(
        "operation", old, new, "the loop", loop.choice or loop.head, loop.head, diff.common, role="loop",
        made=loop.head, condition=loop.choice, added=diff.added, removed=diff.removed, against=diff.against,
    )  # fmt: skip


def _path(event: Compile, diff: GraphDiff, one: Difference, block: Block) -> Change:
    """Another path through the program."""
    came, expected = _place(one.came), _place(one.expected)
    old, new, role = one.old, one.new, _role(diff, one, block)
    if role == "mode" and block.random[0] is not block.random[1]:  # random numbers are drawn in training only
        old, new = "dropout (training)", "no dropout (eval, or p = 0)"
        if block.random[1]:
            old, new = new, old
    variable = f"{block.name} ({block.values[0]} before, {block.values[1]} now)" if block.name else ""
    return _plain(
        diff, one, old=old, new=new, subject=variable or "the next operation", name=block.name,
        stack=block.stack or came or event.stack, expected=(expected if block.new else came) or event.stack,
        role=role, condition=block.condition, made=_place(next(iter(block.new or block.old), None)),
    )  # fmt: skip


def _role(diff: GraphDiff, one: Difference, block: Block) -> str:
    """The part of training that recorded the operations that came or went: all of them, or else the first."""
    roles = set(diff.roles)
    if roles == {"optimizer"} and block.old and block.new and not block.condition:
        return "state"  # another step of it: the first has no momentum to add to
    if len(roles) == 1:
        return roles.pop()
    if "state" in block.roles and "" not in block.roles:  # else a whole step came, with its forward pass
        decided = block.condition and "optimizer" in block.roles and not (block.old and block.new)
        return "optimizer" if decided else "state"  # gradients are accumulated: some turns have no step
    if "grad" in roles and roles <= {"grad", "backward"}:
        return "grad"
    called = one.came if block.new else one.expected
    if called is not None and called.role == "autocast":  # the operation after the cast takes the operands' dtype
        return "autocast"
    if called is not None and not called.role:  # the forward pass took another path, and training followed it
        return ""
    return Counter(block.roles).most_common(1)[0][0] if block.roles else ""


# -- numbers


def _number(diff: GraphDiff, one: Difference) -> Change:
    old, new = _parsed(one.old), _parsed(one.new)
    name, sign = _hyperparameter(new, diff.hyperparameters)
    if one.kind == "scalar" and (rates := _decayed(old, new, diff.hyperparameters)) is not None:
        name, (old, new) = "lr", rates
    elif sign < 0:
        old, new = -old if old is not None else None, -new if new is not None else None
    role = _part_of_training(one.came)
    if one.argument == "training" and one.kind != "size":
        role = "mode"
    elif one.passed and one.kind != "size":
        role = "shared"
    texts = {"old": _shown(old, one.old), "new": _shown(new, one.new)}
    return _plain(diff, one, **texts, name=name or one.name, role=role)


def _parsed(text: str) -> float | None:
    """The recorded number; integers stay integers. ``None`` where it is no number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _shown(value: float | None, text: str) -> str:
    if value is None:
        return text
    return "0.0" if isinstance(value, float) and value == 0 else repr(value)


def _hyperparameter(value: float | None, known: Hyperparameters) -> tuple[str, int]:
    """``(name, sign)`` of the optimizer's number that equals ``value`` or its negative."""
    if value is not None:
        for sign in (1, -1):
            for name, number in sorted(known, key=lambda pair: pair[0] != "lr"):
                if number == sign * value and (number or name == "lr"):
                    return name, -1 if value == 0 and str(value).startswith("-") else sign
    return "", 1


def _decayed(old: float | None, new: float | None, known: Hyperparameters) -> tuple[float, float] | None:
    """The learning rates, where both numbers are ``1 - lr * weight_decay``, as in AdamW."""
    rates, decays = ([value for name, value in known if name == which] for which in ("lr", "weight_decay"))
    if not isinstance(old, float) or not isinstance(new, float):
        return None
    for rate in rates:
        for decay in decays:
            if decay and new == 1 - rate * decay:
                return float(f"{(1 - old) / decay:.7g}"), rate
    return None
