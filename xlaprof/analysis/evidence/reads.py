"""The reads of a run by line of the program: which of them are a habit, and their cost.

These reads are no habit: outside the loop (the result at the end), at the end of every epoch, and *late* ones (the
device had more work to do after the value). Rare reads, in less than one of ten steps, are a habit only where they cost
much.

Cost: the program's gain if the read did not wait. A read makes host and device take turns: the host waits for the
device, then the device waits until the host has recorded the next graph. Had they overlapped, the shorter of the two
waits would have vanished. So a read costs the shorter of its wait and of the idle time after it (with the device's work
for the read alone), plus the copy itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from math import ceil
from typing import Literal

from xlaprof.analysis.fold.tallies import CompileRecord, ReadTally
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, head
from xlaprof.analysis.places import is_head, short
from xlaprof.analysis.principles import FELT, HABIT, LITTLE, LONG_S, MANY, MOST, STOPS_NS, TRIFLE, WORTH_SAYING
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.analysis.uses import Use, read_of
from xlaprof.analysis.whatif import replay
from xlaprof.analysis.whatif.replay import Cut
from xlaprof.events import Change
from xlaprof.text.quantities import duration, size_text, times

from .counted import Key, ReadEvents
from .dynamic_size_ops import is_sized
from .facts import Facts
from .looping import growing, grows
from .reading import SCALAR

_STEPS, _OF = 2, 8  # reads in fewer than 2 of at least 8 steps are one event: a checkpoint halfway
# of the steps without compiles: a read with a measured wait, or between the steps, that costs less is none
_NOTHING = 0.001
_INDEX = "index of aten::select"


class Reads:
    """The reads of one line, of one sort: numbers and tensors, or sizes that values decide."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.tally = ReadTally()
        self.count = 0  # in the loop
        self.barrier = 0  # stack of the barrier that a step reaches after them; 0: they do not cut its graph
        #: compiled for these reads alone: another graph holds the same operations
        self.graphs: list[CompileRecord] = []
        self.via = ""
        self.stacks: list[int] = []
        self.alone = 0  # ns of device work only for these reads
        self.alone_at: list[int] = []  # the stacks of those with such work
        self._ops: dict[str, int] = {}
        self._counted: dict[str, set[Key]] = {"in_steps": set(), "looped": set(), "count": set()}

    @property
    def op(self) -> str:
        """The most frequent operator at the line."""
        return max(sorted(self._ops), key=lambda name: self._ops[name])

    def add(self, facts: Facts, key: tuple[int, int], tally: ReadTally) -> None:
        """Add the reads of one operator with one stack."""
        stack, op = key
        name = facts.text(op)
        rhythm, self.tally.rhythm = self.tally.rhythm, Rhythm()
        self.tally.merge(tally)
        self.tally.rhythm = rhythm
        rhythm.join(tally.rhythm)
        self._ops[name] = self._ops.get(name, 0) + tally.count
        self.via = self.via or facts.text(facts.run.vias.get(key, 0))
        if stack not in self.stacks:
            self.stacks.append(stack)
            if name == SCALAR or is_sized(name):  # other values need not be computed again
                self.alone += facts.run.read_runs.get(stack, 0)
                self.alone_at.append(stack)
        after = _after_epoch(facts, stack, tally) and not _is_dear(facts, [stack])
        if not after and (those := _in_loop(facts, stack, tally)):
            self.count += getattr(tally, those)
            self._counted[those].add(key)

    def find_barrier(self, facts: Facts) -> None:
        """Find the barrier whose graph these reads compute in part beforehand."""
        cut = [one for one in facts.run.compiles if one.stack in self.stacks]
        if self.alone and (not cut or any(one.again for one in cut)):
            self.barrier = _barrier_after(facts, self.stacks)

    def add_graphs(self, facts: Facts, others: Container[int]) -> None:
        """Add the graphs that the reads need for that; ``others``: begins of compiles that have another cause.

        In a loop without a barrier each read ends a graph, and the next one computes anew what it needs of that, or
        takes out another element: only the first graph of the loop would be there without the reads.
        """
        own = (one for one in facts.run.compiles if one.stack in self.stacks and one.t not in others)
        records = [one for one in own if not (one.nth and one.stack in facts.once(growing))]
        if self.barrier:
            self.graphs = [one for one in records if one.again]
        elif self.alone and has_own(facts, self.stacks[0]):
            loop = head(facts.names.loop(self.stacks[0]))
            alike = (one for one in facts.run.compiles if head(facts.names.loop(one.stack)) == loop)
            first = next(alike, None)
            here = [one for one in records if not grows(facts.run.sites[one.stack])]
            self.graphs = [one for one in here if one is not first and (takes_element(one) or 2 * one.again >= one.ops)]
            self.graphs += [one for one in facts.run.compiles if leaves_element(facts, self, one)]

    @property
    def counted(self) -> ReadEvents:
        """The reads that ``count`` counts."""
        return ReadEvents(*map(frozenset, self._counted.values()))

    @property
    def cost_s(self) -> float:
        """Seconds that would be gained without these reads and the graphs that they need."""
        return self._stopped_s + sum(record.dur for record in self.graphs) / 1e9

    @property
    def _stopped_s(self) -> float:
        tally = self.tally
        if not tally.known:
            return tally.digest_dur / 1e9
        each = (min(tally.serial + self.alone, tally.wait) + self.copy_ns) / tally.known
        return min(each * tally.count / 1e9, self.waited_s)  # those of ordinary steps, told as sums, are shorter

    @property
    def cut(self) -> Cut:
        """The part of the run that would go with these reads."""
        return replay.together((replay.reads(self.stacks, self.alone_at), replay.compiles(self.graphs, recorded=True)))

    @property
    def waited_s(self) -> float:
        """Seconds that the host waited for the values and copied them, without compiling."""
        return (self.tally.wait + self.copy_ns + self.tally.digest_dur) / 1e9

    @property
    def copy_ns(self) -> int:
        """ns of the reads recorded one by one, without waiting and compiling."""
        tally = self.tally
        return max(0, tally.dur - tally.digest_dur - tally.wait - tally.compiled)

    def is_habit(self, facts: Facts) -> bool:
        """Whether they make a finding."""
        tally = self.tally
        often = self.count >= HABIT or (self.count > 1 and _is_dear(facts, self.stacks, LONG_S))
        if often and self.barrier and not self._is_rare(facts):
            return True  # even without a wait: the device stops there, and a graph is compiled however seldom it comes
        stalled = self.count * tally.stalled // tally.known if tally.known else self.count
        if stalled < HABIT:
            return False
        cost = self.cost_s
        measured = tally.wait > STOPS_NS * tally.known or self.is_between_steps(facts)
        # of a program without barriers a read ends no graph: it only waits
        least = _NOTHING if facts.barriers else WORTH_SAYING
        if measured and cost < least * facts.working_s:
            return False
        if facts.step_count >= _OF and 0 < tally.rhythm.steps < _STEPS and not self._is_beside(facts):
            return cost >= FELT * facts.total_s
        return not self._is_rare(facts)

    def _is_rare(self, facts: Facts) -> bool:
        """Whether they are for the program's log: in one of ten steps or fewer, for little; or in some, for less."""
        between = self.is_between_steps(facts) and not self._is_in_loop_of_steps(facts)
        own_loop = between or self._is_beside(facts)
        steps = self.count if own_loop else self.tally.rhythm.steps or self.count
        if not own_loop and self.tally.rhythm.every > 1 and self.cost_s < TRIFLE * facts.total_s:
            return True
        whole = facts.total_s if facts.barriers else facts.wall_s  # JAX compiles for long in steps that are no more
        dear = self.cost_s >= FELT * whole or (self.barrier and _is_dear(facts, self.stacks))
        return steps <= LITTLE * facts.step_count and not dear

    def _is_beside(self, facts: Facts) -> bool:
        """Whether they lie in a loop beside the training's, as a decoder's, with barriers that end its turns."""
        return self.tally.rhythm.steps < _STEPS and any(
            2 * site.executed >= self.count and facts.names.shares_loop(self.stacks[0], stack)
            for stack, site in facts.barriers.items()
        )

    def _is_in_loop_of_steps(self, facts: Facts) -> bool:
        """Whether the innermost loop around them calls jitted functions in many more turns, and has no barrier.

        What comes there in few of the steps is for the program's log, as a mean of each hundredth step.
        """
        loop = facts.names.loop(self.stacks[0])
        if facts.barriers or not loop.line:
            return False
        often = HABIT * max(1, self.tally.rhythm.steps)
        ran = facts.run.executed_at.items()
        calls = (stack for stack, there in ran if there.count >= often and stack not in facts.run.jit.outside)
        return any(head(facts.names.loop(call)) == head(loop) for call in calls)

    def is_between_steps(self, facts: Facts) -> bool:
        """Whether they lie in a loop of their own, such as an evaluation's, that no barrier ends the turns of."""
        names, stack = facts.names, self.stacks[0]
        loops = names.heads(stack)
        visits = {stack: site.executed for stack, site in facts.barriers.items() if site.executed}
        main = max(visits, key=visits.__getitem__, default=0)
        step = names.loop(main)
        if not loops or not visits or not step.line:
            return bool(loops) and not visits
        return head(step) not in loops or (head(names.loop(stack)) != head(step) and self.tally.rhythm.every > 1)

    def how_long(self) -> str:
        """ "20 times, 173 ms waited (8.7 ms each; the device worked for 110 ms of it)"."""
        waited, stopped = self.waited_s, self._stopped_s
        beside = waited - stopped
        worked = f"; the device worked for {duration(beside)} of it" if beside > LITTLE * waited else ""
        each = duration(waited / max(1, self.tally.count))
        return f"{times(self.count)}, {duration(waited)} waited ({each} each{worked})"

    @property
    def is_mostly_work(self) -> bool:
        """Whether the device worked for most of the wait: then one turn more costs more than a wait does."""
        return self.waited_s - self._stopped_s >= MOST * self.waited_s > 0

    def waited(self) -> str:
        """The parts of the wait, as text."""
        tally = self.tally
        own = sum(record.dur for record in self.graphs)
        compiled = f"{duration(own / 1e9)} compiling, " if own else ""
        if tally.compiled > own:
            compiled += f"{duration((tally.compiled - own) / 1e9)} compiling that is not counted here, "
        return (
            f"{duration(tally.wait / 1e9)} waiting for the device, {compiled}{duration(self.copy_ns / 1e9)} "
            f"handing over and copying {size_text(tally.bytes)}"
        )


def habits(facts: Facts) -> list[Reads]:
    """The reads in the program's loop, by line; without those of sizes that values decide."""
    return [reads for reads in by_line(facts, sized=False) if reads.is_habit(facts)]


def decider(facts: Facts, change: Change, place: Place) -> Reads | None:
    """The read whose value decides on another path, or on another number, that ``place`` records."""
    lines = {one.at for one in (place.acting, facts.place(change.condition).acting)}
    for reads in facts.once(habits) if change.what in ("operation", "argument") else ():
        line = reads.place.acting
        decides = read_of(line.code, scalar=reads.op == SCALAR).use <= Use.DECIDES and not reads.via
        if decides and line.at in lines:
            return reads
    return None


def loop_within_step(facts: Facts, stack: int) -> Place:
    """The loop around a read, where a barrier ends the turns of a loop around that, and none those of this; else
    NOWHERE."""
    ends = {head(facts.names.loop(barrier)) for barrier in facts.barriers}
    turn, *around = (*facts.names.loops(stack), NOWHERE)
    return turn if head(turn) not in ends and not ends.isdisjoint(map(head, around)) else NOWHERE


def _is_dear(facts: Facts, stacks: Container[int], least_s: float = 0.0) -> bool:
    """Whether the graphs that these reads alone need take much to compile, whatever else has them compiled again."""
    own = (one.dur for one in facts.run.compiles if one.stack in stacks and one.again > 0)
    return sum(own) >= max(FELT * facts.total_s, least_s) * 1e9


def takes_element(record: CompileRecord) -> bool:
    """Whether a graph takes another element out of a tensor than the one before, and what the host reads is that
    number, or computed of such numbers alone: the host can take it out of a copy of the tensor as well."""
    change = record.change
    return record.trigger == "read" and change is not None and change.element and change.subject == _INDEX


def takes_of_the_same(record: CompileRecord, barrier: int, at_once: bool) -> bool:
    """Whether it is an element of the same tensor, which the host needs: no barrier has come, or most of the graph was
    computed before. ``at_once``: the device can do what is done with it."""
    return takes_element(record) and (not barrier or (not at_once and 2 * record.again >= record.ops))


def takes_elements(facts: Facts, reads: Reads) -> bool:
    """Whether a loop goes over the elements of a tensor, and reads each: its head takes each out, in a graph."""
    taken = (one for one in facts.run.compiles if one.stack in reads.stacks and takes_element(one))
    return sum(one.change is not None and is_head(facts.place(one.change.stack)) for one in taken) > 1


def leaves_element(facts: Facts, reads: Reads, record: CompileRecord) -> bool:
    """Whether a barrier's graph differs by the element that the loop of these reads took out last, which none read."""
    change = record.change
    if record.trigger == "read" or change is None or change.what != "operation" or change.removed:
        return False
    return facts.place(change.stack).at == facts.names.loop(reads.stacks[0]).at and takes_elements(facts, reads)


def element_read(facts: Facts, records: Iterable[CompileRecord], place: Place) -> Reads | None:
    """The read in a loop over elements for which all these graphs take one out, or whose number ``place`` is given."""
    stacks = {one.stack if takes_element(one) else 0 for one in records}
    for reads in facts.once(habits):
        if (stacks <= set(reads.stacks) or reads.place.at == place.at) and takes_elements(facts, reads):
            return reads
    return None


#: JAX's operations that take elements out of an array
_UNSTACK = "unstack"  # all of them, for a loop over it
_TAKES = frozenset({"dynamic_slice", "slice", "gather", "squeeze", "reshape"})


def takes_outside(facts: Facts, place: Place) -> bool:
    """Whether a line only takes elements out of arrays, outside of JAX's jitted functions. Where the turns of its loop
    call one, the arrays may be other ones in each."""
    calls = map(facts.place, facts.run.jit.callers)
    if (place.file, place.func, place.loop) in {(one.file, one.func, one.loop) for one in calls}:
        return False
    names = facts.once(_outside).get(place.at, set())
    return bool(names) and names <= _TAKES


def goes_over(facts: Facts, place: Place) -> bool:
    """Whether the loop around a line goes over an array of JAX's: its head takes each element out, as an operation."""
    return _UNSTACK in facts.once(_outside).get((place.file, place.loop), set())


def _outside(facts: Facts) -> dict[tuple[str, int], set[str]]:
    """The operations outside of JAX's jitted functions, by their line."""
    found: dict[tuple[str, int], set[str]] = {}
    for stack, told in facts.run.jit.outside.items():
        found.setdefault(facts.place(stack).at, set()).update(map(facts.text, told.functions))
    return found


def in_loop(facts: Facts, stack: int) -> int:
    """The number of reads at ``stack`` inside the program's loop."""
    tallies = [tally for (place, _), tally in facts.run.reads.items() if place == stack]
    return sum(getattr(tally, those) for tally in tallies if (those := _in_loop(facts, stack, tally)))


def is_own_graph(facts: Facts, record: CompileRecord) -> bool:
    """Whether a read in the loop needed this graph the first time.

    One line may read several times a step, in a helper that each block calls: each of those reads ends a graph.
    """
    if record.trigger != "read" or (record.change is not None and record.change.what == "evicted"):
        return False
    # a number, as a class's, differs from that of the turn before, and what was computed before is again: without the
    # reads one graph would hold all turns of the loop, with all their numbers
    numbers = record.change is not None and record.change.what in ("scalar", "argument")
    if numbers and 2 * record.again > record.ops and has_own(facts, record.stack):
        tallies = [tally for (stack, _), tally in facts.run.reads.items() if stack == record.stack]
        return record.nth < max(ceil(tally.count / max(1, tally.rhythm.steps)) for tally in tallies)
    steps = max((site.executed for site in facts.barriers.values()), default=0)
    repeated = in_loop(facts, record.stack)
    if repeated < HABIT or not record.nth:
        return repeated >= HABIT
    if numbers and not steps:  # no step has a barrier that would compute the value all the same
        return takes_element(record) or 2 * record.again >= record.ops
    return record.nth < ceil(repeated / max(1, steps))  # of the first step reads may not have counted


def by_line(facts: Facts, *, sized: bool) -> list[Reads]:
    """The reads of a run, one entry for each line: of sizes that values decide, or of all else."""
    found: dict[tuple[str, int, str], Reads] = {}
    for key, tally in facts.run.reads.items():
        if tally.count <= 0 or is_sized(facts.text(key[1])) is not sized:
            continue
        place = facts.place(key[0])
        # numbers and tensors of one line go together; reads without a known line do not
        line = (*place.at, short(place) if place.line else str(key))
        found.setdefault(line, Reads(place)).add(facts, key, tally)
    for reads in found.values() if not sized else ():
        reads.find_barrier(facts)
    return list(found.values())


def _barrier_after(facts: Facts, stacks: list[int]) -> int:
    """The barrier that follows these reads most often, in the same turn of its loop; 0: none."""
    after: Counter[int] = Counter()
    read = 0
    for stack, _ in facts.run.cuts:
        if stack in stacks:
            read = stack
        elif read and stack in facts.barriers:
            after[stack] += facts.names.shares_loop(read, stack)
            read = 0
    return next((stack for stack, count in after.most_common(1) if count > 1), 0)


def _in_loop(facts: Facts, stack: int, tally: ReadTally) -> Literal["in_steps", "looped", "count", ""]:
    """The field of ``tally`` that counts the reads in the program's loop; "": there are none."""
    if facts.named_steps:
        return "in_steps"
    if facts.run.barriers <= 1:
        return "count"
    own = tally.looped and has_own(facts, stack)
    if tally.looped < tally.count and (own or facts.names.heads(stack) & _working_loops(facts)):
        return "count"
    return "looped"


def has_own(facts: Facts, stack: int) -> bool:
    """Whether the innermost loop of these reads has no barrier: its turns after the last one are like the others."""
    loop = facts.names.loop(stack)
    return bool(loop.line) and not any(head(loop) in facts.names.heads(barrier) for barrier in facts.barriers)


def _working_loops(facts: Facts) -> set[tuple[str, str, int]]:
    """The innermost loops in which something other than a read gives the device work."""
    run = facts.run
    stacks = [stack for stack, site in facts.barriers.items() if site.executed >= HABIT]
    stacks += [stack for stack, count in run.given.items() if count >= HABIT]
    return {head(facts.names.loop(stack)) for stack in stacks}


def _after_epoch(facts: Facts, stack: int, tally: ReadTally) -> bool:
    """Whether the reads lie in a loop around that of the barriers, of the training steps, or, where there are no
    barriers, of JAX's jitted functions: once for many steps."""
    if not facts.barriers:
        calls = (call for call in facts.run.executed_at if call not in facts.run.jit.outside)
        seldom = MANY * tally.count <= facts.step_count
        return seldom and any(facts.names.is_outside(stack, call) for call in calls)
    return any(
        (site.executed >= HABIT * tally.count and facts.names.is_outside(stack, other))
        or (site.loop_trains and site.loops >= HABIT and facts.names.is_outside(stack, site.loop))
        for other, site in facts.barriers.items()
    )
