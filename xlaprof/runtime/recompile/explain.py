"""Why a graph is new: how it differs from the likest one that ran at the same barrier, told in the program's terms.

Nothing is kept or looked at while known graphs run. A graph that is compiled is compared with those compiled before at
its barrier (:mod:`.contrast`); the first difference that is not the consequence of another is the reason. Where there
is none to be compared with, it is where the walk left the trie (:mod:`.siblings`).
"""

from __future__ import annotations

import linecache
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.recording.stacks import is_library
from xlaprof.runtime.execution.program import Plan, cache
from xlaprof.runtime.instruments.retainers import retainer_of
from xlaprof.runtime.instruments.retaining_lines import retaining_line
from xlaprof.runtime.trace import naming
from xlaprof.runtime.trace.storage import Storage
from xlaprof.runtime.trace.trie import Node, Packed, Ref

from .conditions import condition, decision, names
from .graph_diff import Block, Contrast, Difference, contrast, token
from .loop_iterations import Passes, chosen, numbers, passes
from .reasons import Divergence, Reason, line_of, operation, show
from .trie_divergence import change, parted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.tape.tape import Tape

__all__ = ["Divergence", "Reason", "Walk", "change", "diverged", "parted", "reason", "walk"]

#: graphs remembered on a tape, those of them kept when the trie is full, and of those at one barrier the ones compared
KNOWN, KEPT = 256, 16
_COMPARED = 6
_MOST = 0.8
_OPTIMIZER = frozenset({"optimizer", "state"})
_GRADIENTS = frozenset({"zero_grad", "grad"})
_FOLLOWS = frozenset({"inputs", "aliasing", "shape", "dtype", "sharding"})


class Walk(NamedTuple):
    """A walk that met no plan: what it ended with, and where."""

    trigger: str
    place: tuple[RawFrame, ...]  # the barrier; empty where nobody recorded
    end: Node
    plan: Plan
    key: tuple[Any, ...]  # of the plan, at its end
    made: tuple[tuple[RawFrame, ...], ...]  # lines that made the graph's inputs
    updates: frozenset[int] = frozenset()  # ids of what an optimizer reads in it from before: the parameters it updates


def diverged(parent: Node, node: Node) -> Divergence:
    """The first new edge of a walk, with what can be said of it only now."""
    return Divergence(parent, node, naming.hyperparameters() if node.role in _OPTIMIZER else ())


def walk(tape: Tape, trigger: str, place: tuple[RawFrame, ...], end: Node, plan: Plan, key: tuple[Any, ...]) -> Walk:
    """Remember a walk for which a plan was made, to compare later ones with."""
    made = tuple(tape.owners[position].frames for position in plan.graph.positions)
    new = Walk(trigger, place, end, plan, key, made, _updated(tape, plan))
    tape.known.append(new)
    return new


def _updated(tape: Tape, plan: Plan) -> frozenset[int]:
    graph = plan.graph
    read = {a.slot for node in graph.nodes if node.role == "optimizer" for a in node.args if type(a) is Ref}
    owners = (tape.owners[at] for slot, at in zip(graph.inputs, graph.positions, strict=True) if slot in read)
    return frozenset(map(id, owners))


def reason(tape: Tape, new: Walk, storages: Sequence[Storage]) -> Reason | None:
    """Why the graph of ``new`` is not a known one; ``None``: nothing came before it.

    ``storages`` are those whose values it is to compute.
    """
    try:
        return _reason(tape, new, storages)
    except Exception as error:  # whatever is wrong with an explanation, the program goes on
        warnings.warn(f"xlaprof cannot say why a graph is new: {error!r}", RuntimeWarning, stacklevel=2)
        return None


def _reason(tape: Tape, new: Walk, storages: Sequence[Storage]) -> Reason | None:
    found = _closest(tape, new)
    if found is None:
        return parted(tape.divergence, new.end, new.key)
    old, differing = found
    told = _told(tape, old, new, differing, storages)
    if told is None:
        return parted(tape.divergence, new.end, new.key)
    program = cache.peek(old.plan.key)
    if told.what == "operation" and not told.role and old.updates and new.updates and not old.updates & new.updates:
        told = told._replace(role="turn")
    return told._replace(
        added=differing.added,
        removed=differing.removed,
        position=differing.common,
        against=program.number if program is not None else 0,
    )


def _closest(tape: Tape, new: Walk) -> tuple[Walk, Contrast] | None:
    """The latest graph that ran at the same barrier, unless another is more than twice as like; and how it differs."""
    same = [w for w in tape.known if w is not new and w.trigger == new.trigger and w.place == new.place]
    same.sort(key=lambda w: w.end.last_used, reverse=True)
    compared = [(w, contrast(w.plan.graph, new.plan.graph)) for w in same[:_COMPARED]]
    if not compared:
        return None
    likest = min(compared, key=lambda pair: (pair[1].distance[0], _has_other_shapes(pair[1]), pair[1].distance[1]))
    (operations, others), (fewest, least) = compared[0][1].distance, likest[1].distance
    if _has_other_shapes(compared[0][1]) and not _has_other_shapes(likest[1]):
        return likest  # one line works on this tensor and on that, in turns
    return compared[0] if operations <= 2 * fewest and (fewest or others <= 2 * least) else likest


def _has_other_shapes(found: Contrast) -> bool:
    return any(d.what in ("shape", "dtype") for d in found.differences)


def _told(tape: Tape, old: Walk, new: Walk, found: Contrast, storages: Sequence[Storage]) -> Reason | None:
    first = _first(tape, old, new, found)
    if first is None:
        return _outputs(old, new, found, storages)
    if first.what in ("shape", "dtype", "sharding"):
        return _input(tape, new, first)
    if first.block is not None:
        return _cut(tape, new, first.block) or _repeated(old, new) or _path(new, found, first)
    if first.came is None or first.expected is None:
        return None
    if first.what in ("inputs", "aliasing"):
        return _value(tape, new, first)
    return _other_passes(old, new, first) or _picked(tape, old, new, first) or _number(tape, old, new, first)


def _first(tape: Tape, old: Walk, new: Walk, found: Contrast) -> Difference | None:
    """The difference that the others follow from: of an input before all, then the first that was recorded.

    A tensor of another shape is cause enough for another path through the program, and for other arguments.
    """
    inputs = [d for d in found.differences if d.what in ("shape", "dtype", "sharding")]
    if found.blocks:  # what stands beside what may be by chance
        inputs = _by_maker(tape, old, new)
    others = [d for d in found.differences if _is_of_another_module(tape, new, d)]
    inputs = [d for d in inputs if d not in others] or others
    if inputs:
        return inputs[0]
    sizes = [d for d in found.differences if d.what == "size"]
    state = [d for d in found.differences if d.block is not None and "state" in _roles(d.block)]
    # beside operations that came or went, which value is which follows from them
    firm = [d for d in found.differences if not found.blocks or d.what not in _FOLLOWS]
    # which gradients there are, and what is done with them, follows from the path as well
    taken = [d for d in firm if not found.blocks or not _of_gradients(d)]
    came = [d for d in firm if d.block is not None]
    return next(iter(sizes or state or taken or came or firm), None)


def _is_of_another_module(tape: Tape, new: Walk, d: Difference) -> bool:
    """A parameter of another shape in the forward pass: parameters keep theirs, so it is another one."""
    return d.what == "shape" and d.came is not None and not d.came.role and _is_parameter(tape, new, d.input)


def _of_gradients(d: Difference) -> bool:
    roles = _roles(d.block) if d.block is not None else {d.came.role} if d.came is not None else set()
    return roles <= _GRADIENTS


def _by_maker(tape: Tape, old: Walk, new: Walk) -> list[Difference]:
    """Inputs that one line of the program made, and that now have another shape or dtype.

    No parameters, nor their gradients: where one came in place of another, the path decided which.
    """
    before: dict[tuple[RawFrame, ...], list[Any]] = {}
    for frames, sig in zip(old.made, old.plan.graph.sigs, strict=True):
        if frames:
            before.setdefault(frames, []).append(sig)
    now: dict[tuple[RawFrame, ...], list[tuple[int, Any]]] = {}
    for frames, slot, sig in zip(new.made, new.plan.graph.inputs, new.plan.graph.sigs, strict=True):
        now.setdefault(frames, []).append((slot, sig))
    found = []
    for frames, sigs in before.items():
        others = now.get(frames, [])
        if len(others) != len(sigs):
            continue
        gone, came = Counter(sigs), Counter(sig for _, sig in others)
        old_sigs = [sig for sig in sigs if gone[sig] > came[sig]]
        new_sigs = [(slot, sig) for slot, sig in others if came[sig] > gone[sig]]
        for was, (slot, sig) in zip(old_sigs, new_sigs, strict=False):
            if _is_parameter(tape, new, slot):
                break
            what = "shape" if was.shape != sig.shape else "dtype"
            user = new.plan.graph.reader(slot)
            found.append(Difference(what, "", was.text, sig.text, user, user, slot))
    return found


def _is_parameter(tape: Tape, walk: Walk, slot: int) -> bool:
    owner = _owner(tape, walk, slot)
    return owner is not None and bool(naming.parameter(owner))


def _frames(node: Node | None) -> tuple[RawFrame, ...]:
    return node.frames if node is not None else ()


def _input(tape: Tape, new: Walk, d: Difference) -> Reason:
    owner = _owner(tape, new, d.input)
    made, moved = origin(tape, owner) if owner is not None else ((), False)
    if d.what == "shape" and owner is not None and naming.parameter(owner):
        made, moved = (), False  # it is another parameter, which the line that uses it asked for
    return Reason(
        d.what, d.old, d.new, f"input of {operation(d.came)}", _frames(d.came), _frames(d.expected), 0, True,
        name=naming.parameter(owner) if owner is not None else "",
        made=made,
        moved=moved,
    )  # fmt: skip


def origin(tape: Tape, storage: Storage) -> tuple[tuple[RawFrame, ...], bool]:
    """The program's line that made the tensor of ``storage``, if one did, and whether it brought it from the host."""
    made = storage.frames if _is_users(storage.frames) else ()
    return made, bool(made) and not _computed(tape, made)


def _owner(tape: Tape, new: Walk, slot: int) -> Storage | None:
    graph = new.plan.graph
    if slot not in graph.inputs:
        return None
    return tape.owners[graph.positions[graph.inputs.index(slot)]]


def _is_users(frames: tuple[RawFrame, ...]) -> bool:
    return bool(frames) and not is_library(frames[0].file, None)


def _computed(tape: Tape, frames: tuple[RawFrame, ...]) -> bool:
    """Did a graph compute what was made at ``frames``? Else it was brought there from the host."""
    return any(frames == place for known in tape.known for place in known.plan.graph.places.values())


def _number(tape: Tape, old: Walk, new: Walk, d: Difference) -> Reason:
    assert d.came is not None
    before, now = _number_of(d.old, _floats(old), _floats(old, "i")), _number_of(d.new, tape.floats, tape.ints, tape)
    hyper = tape.divergence.hyper if tape.divergence is not None else ()
    name, sign = naming.number(now, hyper)
    if d.what == "scalar" and (rates := naming.decayed(before, now, hyper)) is not None:
        name, (before, now) = "lr", rates
    elif sign < 0:
        before, now = -before if isinstance(before, (int, float)) else before, -now
    if not name and d.came.frames and isinstance(now, (int, float)):
        name = naming.variable(d.came.frames[0].file, names(d.came.frames[0]), now)
    subject = f"{d.argument} of {operation(d.came)}"
    role = d.came.role
    if d.what == "size":
        subject = f"result of {operation(d.came)}"
    elif d.argument == "training":
        role = "mode"
    elif type(d.old) is Packed and type(d.new) is Packed:
        role = "shared"
    return Reason(
        d.what, _shown(before), _shown(now), subject, d.came.frames, _frames(d.expected), 0,
        line_of(d.came) == (line_of(d.expected) if d.expected is not None else None),
        name=name, role=role,
    )  # fmt: skip


def _number_of(value: Any, floats: Sequence[Any], ints: Sequence[Any], tape: Tape | None = None) -> Any:
    """The number an argument was: of a packed one, what was handed over."""
    if type(value) is not Packed:
        return value
    numbers = floats if value.kind == "f" else ints
    if isinstance(numbers, dict):
        return numbers.get(value, "another number")
    return numbers[value.index] if value.index < len(numbers) else "another number"


def _floats(old: Walk, kind: str = "f") -> Any:
    """Numbers that the program of ``old`` was given last, by their place."""
    program = cache.peek(old.plan.key)
    if program is None or program.scalars is None:
        return {}
    graph = old.plan.graph
    packed, given = (graph.floats, program.scalars[0]) if kind == "f" else (graph.ints, program.scalars[1])
    return dict(zip(packed, given, strict=False))


def _shown(value: Any) -> str:
    if isinstance(value, float) and value == 0:
        return "0.0"
    return str(value) if isinstance(value, str) else show(value)


def _value(tape: Tape, new: Walk, d: Difference) -> Reason:
    """A value that was computed in the graph and now comes from before it, or the other way round."""
    assert d.came is not None
    owner = _owner(tape, new, d.input)
    if d.what == "aliasing":
        old, now = "the same tensor as elsewhere", "another tensor"
    elif isinstance(d.old, str):
        old, now = d.old, d.new
    else:
        here, before = "computed in the graph", "held from before"
        old, now = (here, before) if d.new is not None else (before, here)
    made = owner.frames if owner is not None and _is_users(owner.frames) else ()
    return Reason(
        d.what, old, now, f"{d.argument} of {operation(d.came)}", d.came.frames, _frames(d.expected), 0, True,
        name=naming.parameter(owner) if owner is not None else "",
        made=made, role=d.came.role,
    )  # fmt: skip


def _cut(tape: Tape, new: Walk, block: Block) -> Reason | None:
    """Operations that are gone from this graph, or came to it, because another barrier ran them, or did before."""
    if new.trigger == "read":  # what it runs is mostly part of a barrier's graph
        return None
    others = [w for w in tape.known if w.place and w.place != new.place and w.trigger != "read" and w is not new]
    if block.old:  # it was the other barrier's turn just now
        latest = max((w for w in tape.known if w is not new), key=lambda w: w.end.last_used, default=None)
        others = [w for w in others if w is latest]
    moved = block.old or block.new
    for other in others:
        if _ran(moved, other.plan.graph.nodes):
            return Reason(
                "operation", "one barrier at the end of the step", "another barrier before it", "the barriers",
                other.place, new.place, 0, True, role="barrier", condition=condition(other.place, new.place),
            )  # fmt: skip
    return None


def _ran(moved: tuple[Node, ...], nodes: tuple[Node, ...]) -> bool:
    """Are these operations among ``nodes``, by their lines; or are they most of them, by their names?

    Where two pieces of a program record the same operations, both have the line of the first.
    """
    if {token(node) for node in moved} <= {token(node) for node in nodes}:
        return True
    these, those = (Counter(operation(node) for node in some) for some in (moved, nodes))
    return these <= those and len(moved) >= _MOST * len(nodes)


def _repeated(old: Walk, new: Walk) -> Reason | None:
    """A loop that was recorded with another number of passes."""
    loop = passes(old.plan.graph, new.plan.graph, new.place)
    return _of_loop(loop) if loop is not None else None


def _other_passes(old: Walk, new: Walk, d: Difference) -> Reason | None:
    """As many passes of a loop as before, or nearly, but other ones: a condition in it chose them."""
    if d.what != "argument" or d.came is None:
        return None
    loop = chosen(old.plan.graph, new.plan.graph, d.came, new.place)
    return _of_loop(loop) if loop is not None else None


def _picked(tape: Tape, old: Walk, new: Walk, d: Difference) -> Reason | None:
    """Another of several values that both walks recorded is used: what was read in between decided which.

    The elements of a tensor that a loop goes over are recorded at its head, and each has its turn.
    """
    if d.what != "argument" or d.came is None or d.expected is None or not _like(d.came, old.end):
        return None
    walked = {id(node): node.depth for node in new.end.path()}
    reads = [w for w in tape.known if w.trigger == "read" and w.place and walked.get(id(w.end), 0) > d.came.depth]
    read = max((w for w in reads if w is not new), key=lambda w: w.end.depth, default=None)
    other = _like(d.expected, new.end)
    if read is None or other is None or not _users(d.came, read.end) & _users(other, read.end):
        return None
    if linecache.getline(*d.came.frames[0][:2]).lstrip().startswith(("for ", "async for ")):
        return None
    op = operation(d.came)
    return Reason(
        "operation", f"{op} ({d.argument} {_shown(d.old)})", f"{op} ({d.argument} {_shown(d.new)})",
        "what is used", read.place, d.came.frames, 0, True,
    )  # fmt: skip


def _like(node: Node, end: Node) -> Node | None:
    """An operation like ``node``, with its numbers, on the walk to ``end``, used or not."""
    alike = (one for one in end.path() if one.op is not None and token(one) == token(node))
    return next((one for one in alike if one.frames and numbers(one) == numbers(node)), None)


def _users(node: Node, end: Node) -> set[tuple[Any, ...]]:
    """What used the result of ``node`` before ``end``."""
    path = (one for one in end.path() if one.op is not None)
    return {token(one) for one in path if any(type(arg) is Ref and arg.slot == node.slot for arg in one.args)}


def _of_loop(loop: Passes) -> Reason:
    old_times, new_times = (f"{times} pass" + "es" * (times > 1) for times in (loop.old, loop.new))
    if old_times == new_times:
        new_times = "other passes"
    return Reason(
        "operation", old_times, new_times, "the loop", loop.choice or loop.head, loop.head, 0, True,
        role="loop", made=loop.head, condition=loop.choice,
    )  # fmt: skip


def _path(new: Walk, found: Contrast, d: Difference) -> Reason | None:
    block = d.block
    assert block is not None
    came, expected = d.came, d.expected
    where = decision(block, new.place)
    gone, arrived = _speaking(block.old), _speaking(block.new)
    other = _frames(gone or expected) if arrived is not None else _frames(came)
    frames = where.frames
    old, now = ("barrier" if node is None else operation(node) for node in (gone or expected, arrived or came))
    role = _role(found.blocks, block)
    if role == "mode":
        old, now = _modes(block) or (old, now)
    line = frames[0] if frames else None
    nodes = new.plan.graph.nodes
    return Reason(
        "operation", old, now, "the next operation", frames or _frames(came) or new.place, other or new.place, 0,
        not block.new or any(node not in block.new and line in node.frames for node in nodes),
        role=role, condition=where.condition, made=_frames((block.new or block.old)[0]),
    )  # fmt: skip


def _speaking(nodes: tuple[Node, ...]) -> Node | None:
    """The first operation that the program called, not one of the tape's own."""
    return next((node for node in nodes if node.op is not None and node.op.func is not None), next(iter(nodes), None))


def _modes(block: Block) -> tuple[str, str] | None:
    """Random numbers are drawn in training only."""
    old, new = (any(node.op is not None and node.op.random for node in nodes) for nodes in (block.old, block.new))
    if old is new:
        return None
    train, other = "dropout (training)", "no dropout (eval, or p = 0)"
    return (train, other) if old else (other, train)


def _role(blocks: Iterable[Block], first: Block) -> str:
    """What recorded the operations that came or went: all of them, or else the first."""
    all_roles = {role for block in blocks for role in _roles(block)}
    if len(all_roles) == 1:
        return all_roles.pop()
    if "state" in _roles(first) and "" not in _roles(first):  # else a step of its own came, with its forward pass
        return "state"
    if "grad" in all_roles and all_roles <= {"grad", "backward"}:
        return "grad"
    called = _speaking(first.new or first.old)
    if called is not None and called.role == "autocast":  # what it casts for takes the operands' dtype
        return "autocast"
    if called is not None and not called.role:  # the forward pass took it, and what trains followed
        return ""
    roles = Counter(node.role for node in (*first.old, *first.new))
    return roles.most_common(1)[0][0] if roles else ""


def _roles(block: Block) -> set[str]:
    return {node.role for node in (*block.old, *block.new)}


def _outputs(old: Walk, new: Walk, found: Contrast, storages: Sequence[Storage]) -> Reason | None:
    """The operations are the same: the tensors that live on are not, or how they may be overwritten."""
    before = {found.slots.get(slot, slot) for slot in old.plan.graph.outs}
    now = set(new.plan.graph.outs)
    extra, missing = sorted(now - before), sorted(before - now)
    changed = [slot for slot in extra or missing if slot >= 0]
    if not changed:
        return None
    makers = {out.slot: node for node in new.plan.graph.nodes for out in node.outs}
    lost = {out.slot: node for node in old.plan.graph.nodes for out in node.outs}
    node = makers.get(changed[0]) or lost.get(changed[0], new.end)
    storage = next((storage for storage in storages if storage.slot == changed[0]), None)
    holder = retainer_of(storage) if storage is not None and extra else None
    name = holder.path if holder is not None else ""
    if storage is not None and not name:
        name = naming.parameter(storage)
    kept = retaining_line(new.place, name) if holder is not None and holder.kind in ("list", "dict", "set") else ()
    return Reason(
        "outputs",
        f"{len(before)} live outputs",
        f"{len(now)} live outputs",
        f"value of {operation(node)} " + ("is now still held" if extra else "is no longer held"),
        kept or node.frames,
        node.frames,
        0,
        True,
        name=name,
        made=node.frames,
        role=holder.kind if holder is not None else "",
    )
