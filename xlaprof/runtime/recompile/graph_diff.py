"""How a new graph differs from the closest one that ran at the same barrier: facts, for the analysis to judge.

A known graph that runs again costs nothing here. A graph that is compiled is compared with those compiled before at its
barrier (:mod:`.alignment`); if there is none, the difference is where the trace left the trie
(:mod:`.trie_divergence`).
"""

from __future__ import annotations

import linecache
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.events import Block, Difference, GraphDiff, Operation
from xlaprof.recording import recorder
from xlaprof.recording.stacks import is_library, library, whole
from xlaprof.runtime.instruments.debug import at_line
from xlaprof.runtime.instruments.retainers import retainer_of
from xlaprof.runtime.instruments.retaining_lines import retaining_line
from xlaprof.runtime.tape.known_traces import KnownTrace, of_models
from xlaprof.runtime.trace import naming
from xlaprof.runtime.trace.trie import Packed, Ref

from .alignment import Alignment, Found, Unmatched, align, is_same_work, token
from .along import along
from .conditions import condition, decision, names, of_other_parts
from .deciding_values import changed
from .elements import elements
from .loop_iterations import choices, iterations, numbers, selected
from .places import Places, line_of, operation, show
from .trie_divergence import departure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xlaprof.recording.recorder import Recorder
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.known_traces import Ran
    from xlaprof.runtime.tape.tape import Tape
    from xlaprof.runtime.trace.storage import Storage
    from xlaprof.runtime.trace.trie import Node

    Frames = tuple[RawFrame, ...]

_COMPARED = 16  # graphs of one barrier that a new one is compared with
_LISTED = 8  # differences in a diff, unless there are more sorts of them
#: differences of one sort in a diff; but as many as are listed of shapes, for all of a batch are padded, and of lines
#: that are given another number, for one number may be at all of them
_OF_A_SORT = 3
_OF_A_LINE = 2  # numbers listed of each line: a slice has two bounds
_MOST = 0.8  # a barrier ran a block if the block is at least this share of the barrier's graph
_INPUTS = frozenset({"shape", "dtype", "sharding"})
_NUMBERS = frozenset({"scalar", "argument", "size"})


class Recorded(NamedTuple):
    """A diff, and the stacks that it refers to."""

    diff: GraphDiff
    places: Places

    def of(self, rec: Recorder) -> GraphDiff | None:
        """The diff, if its stacks are interned in this recording."""
        return self.diff if self.places.rec is rec else None

    def first(self) -> Difference | None:
        """The first difference: of an input, from which others follow, where there is one."""
        diff = self.diff
        inputs = diff.inputs or [one for one in diff.differences if one.kind in _INPUTS]
        return next(iter(inputs or diff.differences), diff.left)

    def text(self) -> list[str]:
        """The first difference in one line, and where it is, for ``PT_XLA_DEBUG``."""
        first, frames = self.first(), self.places.frames
        if first is None:
            return []
        what = f"{first.subject}: {first.kind} changed from {first.old} to {first.new}"
        if first.kind == "operation":
            what = f"{first.subject} was {first.old}, now it is {first.new}"
        elif first.kind == "outputs":
            what = f"{first.subject}: {first.old} became {first.new}"
        elif first.kind == "evicted":
            what = f"it was compiled before and forgotten ({first.subject})"
        came = first.kept or (first.block.stack if first.block is not None else first.came.stack if first.came else 0)
        expected = first.expected.stack if first.expected is not None else 0
        lines = [f"this graph is new because {what}{at_line(frames[came])}"]
        if expected and frames[expected][:1] != frames[came][:1]:
            lines.append(f"what was expected there came{at_line(frames[expected])}")
        return lines if first.seen else [*lines, "that line had not run before"]


def remember(
    tape: Tape,
    trigger: str,
    place: Frames,
    end: Node,
    graph: Graph,
    key: tuple[Any, ...],
    program: Callable[[], Ran | None],
) -> KnownTrace:
    """Remember a trace that ended with new live values, to compare later ones with."""
    read = {a.slot for node in graph.nodes if node.role == "optimizer" for a in node.args if type(a) is Ref}
    owners = [tape.owners[position] for position in graph.positions]
    made = tuple(owner.frames for owner in owners)
    updates = frozenset(id(owner) for slot, owner in zip(graph.inputs, owners, strict=True) if slot in read)
    trace = KnownTrace(
        trigger, place, end, graph, key, made, updates, *of_models(graph, owners), naming.settings(), program
    )
    tape.known.append(trace)
    return trace


def record(tape: Tape, new: KnownTrace, storages: Sequence[Storage]) -> Recorded | None:
    """How the graph of ``new``, which computes ``storages``, differs from known ones; ``None``: it is the first."""
    try:
        places = Places(recorder.active, elements(new))
        diff = _graph_diff(tape, new, storages, places)
    except Exception as error:  # a failed explanation must not stop the program
        warnings.warn(f"xlaprof cannot say why a graph is new: {error!r}", RuntimeWarning, stacklevel=2)
        return None
    return Recorded(diff, places) if diff is not None else None


def record_departure(tape: Tape, end: Node, outs: tuple[int, ...]) -> Recorded | None:
    """Where the trace that ends at ``end`` left the trie; no graphs are compared."""
    places = Places(recorder.active)
    diff = departure(places, tape.divergence, end, outs)
    return Recorded(diff, places) if diff is not None else None


def record_eviction(limit: int, frames: Frames) -> Recorded:
    """The graph needed at ``frames`` was compiled before, and evicted from the cache of ``limit`` programs."""
    places = Places(recorder.active)
    barrier = Operation("barrier", places(frames))
    cache = f"compile cache of {limit} programs"
    return Recorded(GraphDiff(left=Difference("evicted", "compiled", "forgotten", cache, barrier, barrier)), places)


def _graph_diff(tape: Tape, new: KnownTrace, storages: Sequence[Storage], places: Places) -> GraphDiff | None:
    here = [known for known in _others(tape, new) if _ends_where(known, new)]
    versions = [one for one in here if not one.is_on_other_things(new) and is_same_work(one.graph, new.graph)]
    if here and not versions:
        return GraphDiff()  # another phase of the program ends at the same line
    diff = _Recording(tape, *_closest(tape, versions, new), new, places).diff(storages) if versions else None
    return diff or departure(places, tape.divergence, new.end, new.key)


def _ends_where(old: KnownTrace, new: KnownTrace) -> bool:
    """Whether one line of the program ends both; a library below it may have several barriers in its loop."""
    if old.trigger == new.trigger and old.place == new.place:
        return True
    libraries = library(old.place) and library(new.place)
    return bool(libraries) and "read" not in (old.trigger, new.trigger) and tuple(old.place) == tuple(new.place)


def _closest(tape: Tape, versions: list[KnownTrace], new: KnownTrace) -> tuple[KnownTrace, Alignment]:
    """The graph that explains a new one best, and how they differ.

    Where causes interleave, the latest graph differs in several of them, and another only in a part of these: that one.
    Otherwise the latest, unless another is more than twice as close.
    """
    versions.sort(key=lambda known: known.end.last_used, reverse=True)
    elsewhere = (known for known in _others(tape, new) if not _ends_where(known, new))
    shared = of_other_parts([new, *versions], elsewhere)
    compared = [(known, align(known.graph, new.graph, shared)) for known in versions[:_COMPARED]]
    latest = compared[0]
    all_of_it = latest[1].contents
    simpler = [pair for pair in compared[1:] if pair[1].contents < all_of_it]
    closest = min(simpler or compared, key=lambda pair: _distance(pair[1]))
    if simpler or (latest[1].has_other_shapes and not closest[1].has_other_shapes):
        return closest  # the program alternates: between paths, or between tensors of several shapes
    (operations, others), (fewest, least) = latest[1].distance, closest[1].distance
    return latest if operations <= 2 * fewest and (fewest or others <= 2 * least) else closest


def _distance(found: Alignment) -> tuple[int, bool, int]:
    operations, others = found.distance
    return operations, found.has_other_shapes, others


def _others(tape: Tape, new: KnownTrace) -> list[KnownTrace]:
    return [known for known in tape.known if known is not new]


class _Recording:
    """Makes a diff from the alignment of two graphs."""

    def __init__(self, tape: Tape, old: KnownTrace, found: Alignment, new: KnownTrace, places: Places) -> None:
        self.tape = tape
        self.old = old
        self.new = new
        self.found = found
        self.places = places
        self._parameters: dict[int, str] = {}
        self._tokens: dict[int, set[Any]] = {}  # id of a known graph -> tokens of its operations

    def diff(self, storages: Sequence[Storage]) -> GraphDiff | None:
        """The diff; ``None`` if nothing differs."""
        found, old, new = self.found, self.old, self.new
        if found.differences:
            differences = [self._difference(one) for one in self._listed()]
        elif (outputs := self._outputs(storages)) is not None:
            differences = [outputs]
        else:
            return None
        program = old.program()
        loop = None
        if found.blocks:
            loop = choices(old.graph, new.graph, found.blocks, new.place, self.places)
            loop = loop or iterations(old.graph, new.graph, new.place, self.places)
        divergence = self.tape.divergence
        return GraphDiff(
            against=program.number if program is not None else 0,
            common=found.common,
            added=found.added,
            removed=found.removed,
            differences=differences,
            total=len(found.differences) or 1,
            inputs=[self._difference(one) for one in self._inputs_of_one_line()] if found.blocks else [],
            roles=sorted({role for block in found.blocks for role in block.roles}),
            loop=loop,
            hyperparameters=list(divergence.hyperparameters) if divergence is not None else [],
            along=[self.places.operation(node) for node in along(old.graph, new.graph, found.slots)],
        )

    def _listed(self) -> list[Found]:
        """The first differences of each sort: what differs, in which part of training, of a parameter or not.

        The runtime's own write through a view is given the numbers that the view was given, which the program called.
        """
        listed: list[Found] = []
        sorts: Counter[tuple[Any, ...]] = Counter()
        lines: Counter[tuple[Any, ...]] = Counter()
        called = any(one.kind in _NUMBERS and _is_called(one.came) for one in self.found.differences)
        for one in self.found.differences:
            if called and one.kind in _NUMBERS and not _is_called(one.came):
                continue
            role = one.came.role if one.came is not None else ""
            roles = frozenset(one.block.roles) if one.block is not None else role
            sort = one.kind, roles, one.kind == "shape" and not role and bool(self._parameter(one.input))
            sorts[sort] += 1
            line = sort, one.came.frames if one.came is not None else ()
            lines[line] += 1
            is_wide = one.kind == "shape" or (one.kind in _NUMBERS and lines[line] <= _OF_A_LINE)
            most = _LISTED if is_wide else _OF_A_SORT
            if sorts[sort] == 1 or (sorts[sort] <= most and len(listed) < _LISTED):
                listed.append(one)
        return listed

    def _difference(self, one: Found) -> Difference:
        if one.block is not None:
            return self._block(one, one.block)
        if one.kind in _NUMBERS:
            return self._number(one)
        owner = self._owner(one.input)
        made, from_host = origin(self.tape, owner) if owner is not None else ((), False)
        old, new = one.old, one.new
        if one.kind == "inputs" and not isinstance(old, str):
            here, before = "computed in the graph", "held from before"
            old, new = (here, before) if new is not None else (before, here)
        return Difference(
            one.kind, old or "", new or "", one.argument, self.places.of(one.expected), self.places.of(one.came),
            name=self._parameter(one.input), made=self.places(made), moved=from_host,
        )  # fmt: skip

    # -- inputs

    def _inputs_of_one_line(self) -> Iterable[Found]:
        """Inputs made by one line of the program in both traces that now have another shape or dtype."""
        before: dict[Frames, list[Any]] = {}
        for frames, sig in zip(self.old.made, self.old.graph.sigs, strict=True):
            if frames:
                before.setdefault(frames, []).append(sig)
        graph = self.new.graph
        now: dict[Frames, list[tuple[int, Any]]] = {}
        for frames, slot, sig in zip(self.new.made, graph.inputs, graph.sigs, strict=True):
            now.setdefault(frames, []).append((slot, sig))
        found: list[Found] = []
        for frames, sigs in before.items():
            others = now.get(frames, [])
            if len(others) != len(sigs) or len(found) >= _LISTED:
                continue
            gone, came = Counter(sigs), Counter(sig for _, sig in others)
            old_sigs = [sig for sig in sigs if gone[sig] > came[sig]]
            new_sigs = [(slot, sig) for slot, sig in others if came[sig] > gone[sig]]
            for was, (slot, sig) in list(zip(old_sigs, new_sigs, strict=False))[:_OF_A_SORT]:
                kind = "shape" if was.shape != sig.shape else "dtype"
                user = graph.reader(slot)
                found.append(Found(kind, "", was.text, sig.text, user, user, slot))
        return found

    def _owner(self, slot: int) -> Storage | None:
        graph = self.new.graph
        return self.tape.owners[graph.positions[graph.inputs.index(slot)]] if slot in graph.inputs else None

    def _parameter(self, slot: int) -> str:
        name = self._parameters.get(slot)
        if name is None:
            owner = self._owner(slot)
            name = self._parameters[slot] = naming.parameter(owner) if owner is not None else ""
        return name

    # -- numbers

    def _number(self, one: Found) -> Difference:
        came, expected, tape = one.came, one.expected, self.tape
        assert came is not None
        assert expected is not None
        before = _number(one.old, _given(self.old, "f"), _given(self.old, "i"))
        now = _number(one.new, dict(enumerate(tape.floats)), dict(enumerate(tape.ints)))
        name = ""
        if came.frames and isinstance(now, (int, float)):
            name = naming.variable(came.frames[0], names(came.frames[0]), now)
        is_argument = one.kind == "argument"
        return Difference(
            one.kind, _text(before), _text(now), one.argument,
            self.places.operation(expected), self.places.operation(came),
            seen=line_of(came) == line_of(expected),
            name=name,
            passed=type(one.old) is Packed and type(one.new) is Packed,
            loop=selected(self.old.graph, self.new.graph, came, self.new.place, self.places) if is_argument else None,
            read=self.places(self._read_between(expected, came)) if is_argument else 0,
        )  # fmt: skip

    def _read_between(self, expected: Node, came: Node) -> Frames:
        """The read that may have decided which of two similar values is used: both traces recorded and read both.

        Empty for the elements of a tensor that a loop iterates over: they are all recorded at its head.
        """
        mine, theirs = _same_operation(came, self.old.end), _same_operation(expected, self.new.end)
        if mine is None or theirs is None:
            return ()
        if linecache.getline(*whole(came.frames)[0][:2]).lstrip().startswith(("for ", "async for ")):
            return ()
        depths = {id(node): node.depth for node in self.new.end.path()}
        reads = [known for known in _others(self.tape, self.new) if known.trigger == "read" and known.place]
        reads = [read for read in reads if depths.get(id(read.end), 0) > came.depth]
        if not reads:
            return ()
        read = max(reads, key=lambda known: known.end.depth)
        return read.place if _users(came, read.end) & _users(theirs, read.end) else ()

    # -- operations that came or went

    def _block(self, one: Found, block: Unmatched) -> Difference:
        places, new = self.places, self.new
        nodes = (*block.old, *block.new)
        came, expected = _called(block.new) or one.came, _called(block.old) or one.expected
        lacking = self.old.graph if block.new else new.graph
        stack, deciding = decision(block, new.place, (node.frames for node in lacking.nodes))
        line = whole(stack)[0] if stack else None
        inside = set(map(id, block.new))
        of_forward = stack and not deciding and "" in block.roles
        name, values = changed(stack, self.old.settings, new.settings) if of_forward else ("", ("", ""))
        passes = new.trigger == "read" or self._has_lines(
            lacking, nodes
        )  # of a loop, which other parts go through, too
        other = () if passes else self._ran_at(block)
        return Difference(
            "operation",
            operation(expected) if expected is not None else "barrier",
            operation(came) if came is not None else "barrier",
            expected=places.of(expected),
            came=places.of(came),
            seen=not block.new
            or any(id(node) not in inside and line in whole(node.frames) for node in new.graph.nodes),
            block=Block(
                old=places.first(block.old),
                new=places.first(block.new),
                removed=len(block.old),
                added=len(block.new),
                roles=dict(Counter(node.role for node in nodes)),
                random=(_is_random(block.old), _is_random(block.new)),
                stack=places(stack),
                condition=places(deciding),
                name=name,
                values=values,
                barrier=places(other),
                barrier_condition=places(condition(other, new.place)),
            ),
        )

    def _ran_at(self, block: Unmatched) -> Frames:
        """Another barrier whose graph has these operations. If they were removed: only the one that ran last.

        The same line, called from elsewhere, is the same barrier.
        """
        others = _others(self.tape, self.new)
        if block.old:
            others = [max(others, key=lambda known: known.end.last_used)]
        nodes = block.old or block.new
        for other in others:
            elsewhere = other.place and other.place[:1] != self.new.place[:1] and other.trigger != "read"
            if elsewhere and self._has(other.graph, nodes):
                return other.place
        return ()

    def _has(self, graph: Graph, nodes: tuple[Node, ...]) -> bool:
        """Are these operations in ``graph``, by their lines; or are they most of it, by their names? Parts of a program
        that record the same operations share nodes, with the lines of the first."""
        if self._has_lines(graph, nodes):
            return True
        these, those = (Counter(node.op and node.op.aten for node in some) for some in (nodes, graph.nodes))
        return len(nodes) >= _MOST * len(graph.nodes) and these <= those

    def _has_lines(self, graph: Graph, nodes: tuple[Node, ...]) -> bool:
        tokens = self._tokens.get(id(graph)) or self._tokens.setdefault(id(graph), set(map(token, graph.nodes)))
        return all(token(node) in tokens for node in nodes)

    # -- outputs

    def _outputs(self, storages: Sequence[Storage]) -> Difference | None:
        """The operations are the same; other tensors are alive."""
        old, new = self.old.graph, self.new.graph
        before, now = {self.found.slots.get(slot, slot) for slot in old.outs}, set(new.outs)
        extra, missing = sorted(now - before), sorted(before - now)
        changed = [slot for slot in extra or missing if slot >= 0]
        if not changed:
            return None
        lost = {out.slot: node for node in old.nodes for out in node.outs}
        makers = {out.slot: node for node in new.nodes for out in node.outs}
        made = self.places.operation(makers.get(changed[0]) or lost.get(changed[0], self.new.end))
        storage = next((storage for storage in storages if storage.slot == changed[0]), None)
        retainer = retainer_of(storage) if storage is not None and extra else None
        name = retainer.path if retainer is not None else ""
        if storage is not None and not name:
            name = naming.parameter(storage)
        is_container = retainer is not None and retainer.kind in ("list", "dict", "set")
        return Difference(
            "outputs", f"{len(before)} live outputs", f"{len(now)} live outputs", "", made, made,
            name=name, held=bool(extra), holder=retainer.kind if retainer is not None else "",
            kept=self.places(retaining_line(self.new.place, name)) if is_container else 0,
        )  # fmt: skip


def _is_random(nodes: tuple[Node, ...]) -> bool:
    return any(node.op is not None and node.op.random for node in nodes)


def _is_called(node: Node | None) -> bool:
    """Whether the program called the operation."""
    return node is not None and node.op is not None and node.op.func is not None


def _called(nodes: tuple[Node, ...]) -> Node | None:
    """The first operation called by the program, else the first of the runtime's own."""
    return next(filter(_is_called, nodes), next(iter(nodes), None))


def origin(tape: Tape, storage: Storage) -> tuple[Frames, bool]:
    """The program's line that made the tensor of ``storage``, if one did, and whether it came from the host."""
    frames = storage.frames
    if not frames or is_library(frames[0].file, None):
        return (), False
    computed = any(frames == place for known in tape.known for place in known.graph.places.values())
    return frames, not computed


def _given(trace: KnownTrace, kind: str) -> dict[int, Any]:
    """Numbers of the last run of ``trace``'s program, by their index on the tape."""
    program = trace.program()
    if program is None or program.scalars is None:
        return {}
    packed, given = (trace.graph.floats, program.scalars[0]) if kind == "f" else (trace.graph.ints, program.scalars[1])
    return {one.index: number for one, number in zip(packed, given, strict=False)}


def _number(value: Any, floats: dict[int, Any], ints: dict[int, Any]) -> Any:
    """The number that an argument is; for a packed one, that of the run."""
    if type(value) is not Packed:
        return value
    return (floats if value.kind == "f" else ints).get(value.index, "another number")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else show(value)


def _same_operation(node: Node, end: Node) -> Node | None:
    """An operation on the trace to ``end`` with the name, line and numbers of ``node``."""
    alike = (one for one in end.path() if one.op is not None and token(one) == token(node))
    return next((one for one in alike if one.frames and numbers(one) == numbers(node)), None)


def _users(node: Node, end: Node) -> set[tuple[Any, ...]]:
    """Operations up to ``end`` that use the result of ``node``."""
    path = (one for one in end.path() if one.op is not None)
    return {token(one) for one in path if any(type(arg) is Ref and arg.slot == node.slot for arg in one.args)}
